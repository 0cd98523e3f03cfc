// SHA-256 (FIPS 180-4), by which a bundle's files are told from changed ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace kinfolk::detail {

inline std::uint32_t rotated(std::uint32_t word, unsigned count) { return word >> count | word << (32 - count); }

inline void sha256_block(std::array<std::uint32_t, 8>& state, const unsigned char* bytes) {
  static const std::uint32_t rounds[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  std::uint32_t words[64];
  for (unsigned i = 0; i < 16; ++i) {
    words[i] = static_cast<std::uint32_t>(bytes[4 * i]) << 24 | static_cast<std::uint32_t>(bytes[4 * i + 1]) << 16 |
               static_cast<std::uint32_t>(bytes[4 * i + 2]) << 8 | bytes[4 * i + 3];
  }
  for (unsigned i = 16; i < 64; ++i) {
    const std::uint32_t a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + words[i - 7] +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (unsigned i = 0; i < 64; ++i) {
    const std::uint32_t one = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i] + words[i];
    const std::uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const std::uint32_t found[8] = {a, b, c, d, e, f, g, h};
  for (unsigned i = 0; i < 8; ++i) state[i] += found[i];
}

/// The digest in hex.
inline std::string sha256(const std::string& data) {
  std::array<std::uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded = data + '\x80';
  padded.append((120 - padded.size() % 64) % 64, '\0');
  for (unsigned i = 0; i < 8; ++i) padded += static_cast<char>(std::uint64_t{data.size()} * 8 >> (56 - 8 * i) & 0xFF);
  for (std::size_t i = 0; i < padded.size(); i += 64) {
    sha256_block(state, reinterpret_cast<const unsigned char*>(padded.data()) + i);
  }
  std::string hex;
  for (const std::uint32_t word : state) {
    for (unsigned i = 0; i < 8; ++i) hex += "0123456789abcdef"[word >> (28 - 4 * i) & 15];
  }
  return hex;
}

}  // namespace kinfolk::detail
