// Values of requests, and how messages show them: as Python does, so that both hosts say the same.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace kinfolk {

__extension__ typedef __int128 int128;

/// The root of every error thrown here.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A bundle cannot be read, was changed, or is of another version.
struct BundleError : Error {
  using Error::Error;
};

/// Tensors or arguments disagree with the plan; thrown before any launch.
struct BindError : Error {
  using Error::Error;
};

struct Null {
  friend bool operator==(Null, Null) { return true; }
};

/// A field's value: null, bool, int64, double or string, and exactly that: `true` is no 1.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(std::string value) : held_(std::move(value)) {}
  Value(const char* value) : held_(std::string(value)) {}
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>>
  Value(T value) : held_(static_cast<std::int64_t>(value)) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(std::int64_t)) {
      if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max())) {
        throw Error(std::to_string(value) + " is outside signed 64 bits");
      }
    }
  }

  bool is_null() const { return std::holds_alternative<Null>(held_); }
  const bool* boolean() const { return std::get_if<bool>(&held_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&held_); }
  const double* real() const { return std::get_if<double>(&held_); }
  const std::string* text() const { return std::get_if<std::string>(&held_); }
  bool same_type(const Value& other) const { return held_.index() == other.held_.index(); }
  friend bool operator==(const Value& a, const Value& b) { return a.held_ == b.held_; }
  friend bool operator!=(const Value& a, const Value& b) { return !(a == b); }

  /// The type's name in messages.
  std::string type_name() const {
    static const char* const names[] = {"NoneType", "bool", "int", "float", "str"};
    return names[held_.index()];
  }

 private:
  std::variant<Null, bool, std::int64_t, double, std::string> held_;
};

namespace detail {

inline std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string shortest(buffer, end);
  const std::size_t mark = shortest.find('e');
  std::string digits = shortest.substr(0, mark);
  const int exponent = std::stoi(shortest.substr(mark + 1));
  const bool negative = digits[0] == '-';
  if (negative) digits.erase(0, 1);
  if (digits.size() > 1) digits.erase(1, 1);
  const int count = static_cast<int>(digits.size());
  std::string text;
  if (exponent < -4 || exponent >= 16) {
    text = digits.substr(0, 1);
    if (count > 1) text += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    text += std::string("e") + (exponent < 0 ? "-" : "+") + (power.size() < 2 ? "0" : "") + power;
  } else if (exponent < 0) {
    text = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    text = digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    const auto whole = static_cast<std::size_t>(exponent + 1);
    text = digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return negative ? "-" + text : text;
}

inline std::string quoted(const std::string& text) {
  const bool doubles = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubles ? '"' : '\'';
  std::string shown(1, quote);
  for (const char each : text) {
    const auto code = static_cast<unsigned char>(each);
    if (each == quote || each == '\\') {
      shown += '\\';
      shown += each;
    } else if (each == '\n') {
      shown += "\\n";
    } else if (each == '\r') {
      shown += "\\r";
    } else if (each == '\t') {
      shown += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      static const char* const hex = "0123456789abcdef";
      shown += std::string("\\x") + hex[code >> 4] + hex[code & 15];
    } else {
      shown += each;
    }
  }
  return shown + quote;
}

inline std::string integer_text(int128 value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string digits;
  for (int128 left = value; left != 0; left /= 10) {
    const int digit = static_cast<int>(left % 10);
    digits.insert(digits.begin(), static_cast<char>('0' + (digit < 0 ? -digit : digit)));
  }
  return negative ? "-" + digits : digits;
}

/// At most so many characters of a UTF-8 text, the cut marked.
inline std::string shortened(const std::string& text, std::size_t most = 120) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && count++ == most) return text.substr(0, i) + "\xE2\x80\xA6";
  }
  return text;
}

}  // namespace detail

/// The value in words, strings in quotes.
inline std::string repr(const Value& value) {
  if (const auto* held = value.boolean()) return *held ? "True" : "False";
  if (const auto* held = value.integer()) return std::to_string(*held);
  if (const auto* held = value.real()) return detail::real_text(*held);
  if (const auto* held = value.text()) return detail::quoted(*held);
  return "None";
}

/// The value in words, strings as they are.
inline std::string str(const Value& value) { return value.text() ? *value.text() : repr(value); }

/// The value as messages show it: of bounded length.
inline std::string shown(const Value& value) { return detail::shortened(repr(value)); }

/// `16, 32, 48 or 64`.
inline std::string listing(const std::vector<Value>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i + 1 == values.size() ? " or " : ", ";
    text += str(values[i]);
  }
  return text;
}

}  // namespace kinfolk
