// A family on an arch for hosts without Python: which kernel serves a request, why not, and how it is launched.
//
//   const auto bundle = kinfolk::Bundle::load("mla");
//   const auto plan = bundle.dispatch(bundle.request({{"num_heads", 32}, ...}));   // throws NoCandidate with every reason
//   for (const kinfolk::Launch& launch : plan.bind(tensors)) { ... }
//
// C++17, header-only; JSON is read by nlohmann/json 3. docs/bundles.md describes the format.
#pragma once

#include <kinfolk/plan.hpp>
#include <kinfolk/sha256.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

namespace kinfolk {

/// What became of one candidate: every refusal, or notes where it was admitted.
struct Verdict {
  std::string candidate, plugin;
  std::vector<Refusal> refusals;
  std::vector<std::string> notes;
  /// Whether one of the notes says so: the first without such a note is selected, if there is one.
  bool slower = false;
  bool admitted() const { return refusals.empty(); }
};

/// The verdicts on all candidates in order of priority, and why none was selected.
struct Outcome {
  std::vector<Verdict> verdicts;
  std::optional<std::size_t> selected;
  std::vector<Refusal> refusals;
  std::optional<std::string> pin;
};

class Bundle {
 public:
  /// Read the bundle in a folder. Throws BundleError where there is none, or it was changed or is of another version.
  static Bundle load(const std::filesystem::path& folder) {
    const auto path = folder / "launch.json";
    Json data;
    try {
      data = Json::parse(content_of(path));
    } catch (const Json::exception& error) {
      throw BundleError(path.string() + " is no JSON: " + error.what());
    }
    if (!data.is_object() || !data.contains("schema") || data.at("schema") != "kinfolk.bundle/1") {
      throw BundleError(path.string() + " is not of schema kinfolk.bundle/1. Emit it again.");
    }
    Json rest = data;
    rest.erase("digest");
    if (data.value("digest", "") != detail::sha256(rest.dump(-1, ' ', true))) {
      throw BundleError(path.string() + " was changed since it was written: its digest is another. Emit it again.");
    }
    try {
      return Bundle(std::make_shared<const Data>(folder, data));
    } catch (const Json::exception& error) {
      throw BundleError(path.string() + " is not of schema kinfolk.bundle/1: " + error.what());
    }
  }

  const std::string& family() const { return data_->kind->family; }
  const std::string& arch() const { return data_->arch; }
  const std::vector<std::string>& target_ids() const { return data_->target_ids; }

  /// The request with these fields, those with a default may be left out. Throws InvalidRequest for a value that its
  /// field does not take, in Python's words, and Error for a field that is missing or unknown.
  Request request(const Fields& fields) const {
    std::vector<Value> values = complete(fields);
    if (auto wrong = data_->kind->judge(values)) {
      std::vector<Refusal> every{*wrong};
      throw InvalidRequest(wrong->sentence(), std::move(every));
    }
    return Request(data_->kind, std::move(values));
  }

  /// What is wrong with the fields, or nothing. Throws Error for a field that is missing or unknown.
  std::optional<Refusal> invalid(const Fields& fields) const { return data_->kind->judge(complete(fields)); }

  /// A refusal for each field that a bundle of one request was made for another value of.
  std::vector<Refusal> uncovered(const Request& request) const {
    std::vector<Refusal> found;
    for (const auto& [name, wanted] : data_->covers) {
      if (request[name] == wanted) continue;
      found.push_back({"bundle." + name, "cannot", name, request[name], shown(wanted),
                       "the bundle was made for one request", "Emit a bundle for this one, or for all with --all.",
                       "kinfolk-runtime"});
    }
    return found;
  }

  /// The verdict on every candidate, and the choice; throws nothing for a request that is refused.
  Outcome judge(const Request& request) const {
    Outcome outcome;
    for (const Candidate& candidate : data_->candidates) outcome.verdicts.push_back(verdict(candidate, request.values()));
    if (const auto* pin = pin_of(request)) return pinned(std::move(outcome), *pin);
    for (const bool slower : {false, true}) {
      for (std::size_t i = 0; i < outcome.verdicts.size() && !outcome.selected; ++i) {
        if (outcome.verdicts[i].admitted() && outcome.verdicts[i].slower == slower) outcome.selected = i;
      }
    }
    if (!outcome.selected) {
      for (const Verdict& each : outcome.verdicts) {
        outcome.refusals.insert(outcome.refusals.end(), each.refusals.begin(), each.refusals.end());
      }
    }
    return outcome;
  }

  /// The plan of a request. Throws PinRefused or NoCandidate with every reason.
  Plan dispatch(const Request& request) const {
    if (auto refusals = uncovered(request); !refusals.empty()) {
      std::string told = "the bundle in " + data_->folder.string() + " is not made for " + request.text() + ":";
      for (const Refusal& each : refusals) told += "\n  " + each.plugin + ": " + each.sentence();
      throw NoCandidate(told, std::move(refusals));
    }
    Outcome outcome = judge(request);
    if (!outcome.selected) refuse(request, outcome);
    return plan(request, outcome);
  }

  /// The code object of a kernel, as a driver loads it. Throws BundleError for a file that is missing or was changed.
  std::string code(const Kernel& kernel) const {
    std::string content = content_of(kernel.code);
    if (detail::sha256(content) != kernel.code_sha256) {
      throw BundleError(kernel.code.string() + " was changed since it was written. Emit the bundle again.");
    }
    return content;
  }

 private:
  struct Case {
    Expr when;
    std::size_t plan;
    std::vector<std::string> kernels;
    std::vector<Judge> admission;
  };

  struct Note {
    std::string text;
    Expr when;
    bool slower;
  };

  struct Candidate {
    std::string name, plugin;
    std::int64_t priority;
    std::vector<Judge> admission;
    std::vector<Note> notes;
    std::vector<Case> cases;
  };

  struct Data {
    Data(const std::filesystem::path& place, const Json& data) : folder(place), arch(data.at("arch")) {
      auto made = std::make_shared<detail::RequestClass>();
      made->family = data.at("family");
      for (const auto& [name, value] : data.at("facts").items()) made->names.facts[name] = detail::value_from(value);
      made->read(data.at("request"));
      const Names& names = made->names;
      kind = std::move(made);
      target_ids = data.at("target_ids").get<std::vector<std::string>>();
      for (const auto& [name, value] : data.at("covers").items()) covers.emplace(name, detail::value_from(value));
      for (const Json& each : data.at("plans")) plans.emplace_back(each, names);
      for (const auto& [digest, each] : data.at("kernels").items()) kernels.emplace(digest, kernel_from(digest, each));
      for (const Json& each : data.at("candidates")) candidates.push_back(candidate_from(each, names));
      std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return std::tie(a.priority, a.name) < std::tie(b.priority, b.name);
      });
    }

    Kernel kernel_from(const std::string& digest, const Json& data) const {
      Kernel made;
      made.symbol = data.at("symbol");
      made.spec_digest = digest;
      made.code = folder / data.at("code").at("file").get<std::string>();
      made.code_sha256 = data.at("code").at("sha256");
      made.argument_bytes = data.at("argument_bytes");
      for (const Json& each : data.at("arguments")) {
        made.places.push_back({each.at("name"), each.at("kind"), each.at("offset"), each.at("size")});
        const bool narrow = made.places.back().kind == "i32";
        made.places.back().minimum = each.contains("minimum") ? each.at("minimum").get<std::int64_t>() : narrow ? INT32_MIN : INT64_MIN;
        made.places.back().maximum = each.contains("maximum") ? each.at("maximum").get<std::int64_t>() : narrow ? INT32_MAX : INT64_MAX;
      }
      return made;
    }

    static Candidate candidate_from(const Json& data, const Names& names) {
      Candidate made{data.at("name"), data.at("plugin"), data.at("priority"), read_judges(data.at("admission"), names), {}, {}};
      for (const Json& note : data.at("notes")) {
        made.notes.push_back({note.at("text"), Expr::read(note.at("when"), names), note.at("slower")});
      }
      for (const Json& each : data.at("cases")) {
        made.cases.push_back({Expr::read(each.at("when"), names), each.at("plan"),
                              each.at("kernels").get<std::vector<std::string>>(), read_judges(each.at("admission"), names)});
      }
      return made;
    }

    std::filesystem::path folder;
    std::string arch;
    std::shared_ptr<const detail::RequestClass> kind;
    std::vector<std::string> target_ids;
    std::map<std::string, Value> covers;
    std::vector<detail::PlanData> plans;
    std::map<std::string, Kernel> kernels;
    std::vector<Candidate> candidates;
  };

  explicit Bundle(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  static std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw BundleError(path.string() + " cannot be read.");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  std::vector<Value> complete(const Fields& given) const {
    for (const auto& each : given) {
      if (data_->kind->names.fields.count(each.first) == 0) {
        throw Error(data_->kind->name + " has no field " + detail::quoted(each.first));
      }
    }
    std::vector<Value> values;
    for (const detail::Field& field : data_->kind->fields) {
      const auto found = given.find(field.name);
      if (found == given.end() && !field.default_value) {
        throw Error(data_->kind->name + "." + field.name + " is missing, it has no default: " + field.means);
      }
      values.push_back(found == given.end() ? *field.default_value : found->second);
    }
    return values;
  }

  const std::string* pin_of(const Request& request) const {
    const auto found = data_->kind->names.fields.find("candidate");
    return found == data_->kind->names.fields.end() ? nullptr : request.values()[found->second].text();
  }

  static void judge_by(const std::vector<Judge>& judges, const std::vector<Value>& fields, std::vector<Refusal>& found) {
    for (const Judge& each : judges) {
      if (auto refusal = each.judge(fields)) found.push_back(std::move(*refusal));
    }
  }

  static const Case& case_of(const Candidate& candidate, const std::vector<Value>& fields) {
    for (const Case& each : candidate.cases) {
      if (each.when.holds(Scope{&fields, nullptr})) return each;
    }
    throw BundleError(candidate.name + ": the bundle has no case for a request that its capability takes; it is damaged.");
  }

  static Verdict verdict(const Candidate& candidate, const std::vector<Value>& fields) {
    Verdict made{candidate.name, candidate.plugin, {}, {}};
    judge_by(candidate.admission, fields, made.refusals);
    if (!made.refusals.empty()) return made;
    judge_by(case_of(candidate, fields).admission, fields, made.refusals);
    if (!made.refusals.empty()) return made;
    for (const Note& note : candidate.notes) {
      if (!note.when.holds(Scope{&fields, nullptr})) continue;
      made.notes.push_back(note.text);
      made.slower = made.slower || note.slower;
    }
    return made;
  }

  static Outcome pinned(Outcome outcome, const std::string& pin) {
    outcome.pin = pin;
    std::string names;
    for (std::size_t i = 0; i < outcome.verdicts.size(); ++i) {
      const Verdict& each = outcome.verdicts[i];
      names += (names.empty() ? "" : ", ") + each.candidate;
      if (each.candidate != pin) continue;
      outcome.refusals = each.refusals;
      if (each.admitted()) outcome.selected = i;
      return outcome;
    }
    outcome.refusals = {{"request.candidate.unknown", "invalid", "candidate", pin, names.empty() ? "none here" : names,
                         "a pin names a candidate that some plugin offers on this arch", "Pin one of these, or none.",
                         "kinfolk-core"}};
    return outcome;
  }

  static std::string reason(const Refusal& refusal, const std::vector<Verdict>& verdicts, const std::string& candidate) {
    for (const Verdict& each : verdicts) {
      if (each.candidate == candidate && each.plugin == refusal.plugin) return refusal.sentence();
    }
    return refusal.sentence() + " [" + refusal.plugin + "]";
  }

  [[noreturn]] void refuse(const Request& request, Outcome& outcome) const {
    if (outcome.pin) {
      std::string told = request.text() + " on " + data_->arch + " pins candidate " + *outcome.pin + ", which cannot serve it:";
      for (const Refusal& each : outcome.refusals) {
        told += "\n  " + *outcome.pin + ": " + reason(each, outcome.verdicts, *outcome.pin);
      }
      throw PinRefused(told, std::move(outcome.refusals));
    }
    std::string told = "no candidate for " + request.text() + " on " + data_->arch + "; " +
                       std::to_string(outcome.verdicts.size()) + " considered:";
    std::vector<std::pair<std::string, std::vector<std::string>>> alike;  // a reason, once, and all who give it
    for (const Verdict& each : outcome.verdicts) {
      for (const Refusal& refusal : each.refusals) {
        const std::string said = reason(refusal, outcome.verdicts, each.candidate);
        auto found = std::find_if(alike.begin(), alike.end(), [&](const auto& one) { return one.first == said; });
        if (found == alike.end()) found = alike.emplace(found, said, std::vector<std::string>{});
        if (found->second.empty() || found->second.back() != each.candidate) found->second.push_back(each.candidate);
      }
    }
    for (const auto& [said, names] : alike) {
      told += "\n  ";
      for (const std::string& name : names) told += (&name == &names.front() ? "" : ", ") + name;
      told += ": " + said;
    }
    throw NoCandidate(told, std::move(outcome.refusals));
  }

  Plan plan(const Request& request, const Outcome& outcome) const {
    const Candidate& candidate = data_->candidates[*outcome.selected];
    const Case& chosen = case_of(candidate, request.values());
    std::vector<const Kernel*> kernels;
    for (const std::string& digest : chosen.kernels) {
      const auto found = data_->kernels.find(digest);
      if (found == data_->kernels.end()) throw BundleError("the bundle has no kernel " + digest + "; it is damaged.");
      kernels.push_back(&found->second);
    }
    const detail::PlanData& planned = data_->plans.at(chosen.plan);
    if (planned.launches.size() != kernels.size()) throw BundleError("a case has other kernels than its plan launches.");
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      if (planned.launches[i].arguments.size() != kernels[i]->places.size()) {
        throw BundleError(kernels[i]->symbol + " takes other arguments than its plan passes; the bundle is damaged.");
      }
    }
    return Plan(data_, &planned, std::move(kernels), request, candidate.name, outcome.verdicts[*outcome.selected].notes,
                &data_->kind->names.facts, data_->arch);
  }

  std::shared_ptr<const Data> data_;
};

}  // namespace kinfolk
