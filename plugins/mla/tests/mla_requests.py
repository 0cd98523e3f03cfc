"""Requests and scenarios for tests: what a test does not say is as the command line fills it in."""

from kinfolk_mla.request import MlaRequest
from kinfolk_mla.scenarios import decode_scenarios


def asking(*, num_heads, num_seqs, max_seqlen_k):
    """Return a builder of decode requests of this size, one query a sequence; it takes changes."""
    usual = {
        "num_heads": num_heads,
        "num_seqs": num_seqs,
        "total_q": num_seqs,
        "max_seqlen_q": 1,
        "max_seqlen_k": max_seqlen_k,
        "absorbed_query": True,
    }

    def request(**changes):
        given = usual | changes
        return MlaRequest(**given, **MlaRequest.cli_defaults(given))

    return request


def scenario_of(request, name):
    """Return the one scenario of a request with a name."""
    [found] = [each for each in decode_scenarios(request) if each.name == name]
    return found
