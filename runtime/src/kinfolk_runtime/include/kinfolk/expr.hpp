// Expressions as bundles have them: evaluated in checked 64-bit integers, and told in words as Python tells them.
#pragma once

#include <kinfolk/value.hpp>

#include <map>
#include <nlohmann/json.hpp>

namespace kinfolk {

using Json = nlohmann::json;

/// An expression has no value here: it divides by zero, or reads what is absent or of another type.
struct ExprError : Error {
  using Error::Error;
};

/// A number left signed 64 bits on the way to the value.
struct ExprOverflow : ExprError {
  using ExprError::ExprError;
};

/// The shape of a tensor, and its strides in elements.
struct Geometry {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

using Geometries = std::map<std::string, Geometry>;

/// What names stand for: fields by their position in a request, facts by their values.
struct Names {
  std::map<std::string, std::size_t> fields;
  std::map<std::string, Value> facts;
};

/// Where an expression finds its values.
struct Scope {
  const std::vector<Value>* fields = nullptr;
  const Geometries* tensors = nullptr;
};

namespace detail {

inline Value value_from(const Json& data) {
  if (data.is_boolean()) return data.get<bool>();
  if (data.is_number_integer() && !(data.is_number_unsigned() && data.get<std::uint64_t>() >> 63)) {
    return data.get<std::int64_t>();
  }
  if (data.is_string()) return data.get<std::string>();
  if (data.is_null()) return nullptr;
  if (data.is_object() && data.size() == 1 && data.contains("float")) {
    return std::strtod(data.at("float").get_ref<const std::string&>().c_str(), nullptr);
  }
  throw BundleError(data.dump() + " is no value");
}

inline int128 floor_quotient(int128 left, int128 right) {
  const int128 quotient = left / right;
  return quotient * right != left && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

}  // namespace detail

/// A tree; `Expr::read` takes it from `[tag, operand, ...]`.
class Expr {
 public:
  static Expr read(const Json& data, const Names& names, int depth = 0) {
    if (depth > 129 || !data.is_array() || data.empty() || !data[0].is_string()) {
      throw BundleError("an expression is [tag, operand, ...], got " + data.dump().substr(0, 200));
    }
    const auto& row = row_of(data[0].get_ref<const std::string&>());
    Expr made(row);
    const std::size_t count = data.size() - 1;
    if (row.operands >= 0 && count != static_cast<std::size_t>(row.operands)) {
      throw BundleError(std::string(row.tag) + " takes " + std::to_string(row.operands) + " operands: " + data.dump());
    }
    switch (row.op) {
      case Op::is_zero:
        made.children_.push_back(read(data[1], names, depth + 1));
        if (made.children_[0].row_->op != Op::field) throw BundleError("is_zero is asked of a field: " + data.dump());
        break;
      case Op::constant:
        made.value_ = detail::value_from(data[1]);
        break;
      case Op::field:
        made.name_ = data[1].get<std::string>();
        made.index_ = position(names, made.name_);
        break;
      case Op::fact:
        made.name_ = data[1].get<std::string>();
        if (const auto found = names.facts.find(made.name_); found != names.facts.end()) made.value_ = found->second;
        break;
      case Op::stride:
      case Op::extent:
        made.name_ = data[1].get<std::string>();
        made.axis_ = data[2].get<std::int64_t>();
        break;
      case Op::one_of:
        made.children_.push_back(read(data[1], names, depth + 1));
        for (const Json& each : data[2]) made.values_.push_back(detail::value_from(each));
        break;
      default:
        for (std::size_t i = 1; i < data.size(); ++i) made.children_.push_back(read(data[i], names, depth + 1));
    }
    return made;
  }

  Value value(const Scope& scope) const {
    switch (row_->op) {
      case Op::constant:
        return value_;
      case Op::field:
        return checked_field(scope);
      case Op::fact:
        if (value_.is_null()) throw ExprError("no fact " + detail::quoted(name_) + " here");
        return value_;
      case Op::stride:
      case Op::extent:
        return axis(scope);
      case Op::all_of:
      case Op::any_of:
        for (const Expr& term : children_) {
          if (term.holds(scope) == (row_->op == Op::any_of)) return row_->op == Op::any_of;
        }
        return row_->op == Op::all_of;
      case Op::negation:
        return !children_[0].holds(scope);
      case Op::is_zero:
        return children_[0].is_zero_field(scope);
      case Op::select:
        return children_[children_[0].holds(scope) ? 1 : 2].value(scope);
      case Op::one_of:
        return is_one_of(children_[0].value(scope));
      case Op::eq:
      case Op::ne:
        return equality(scope);
      default: {
        const std::int64_t left = children_[0].integer(scope);  // the left one first: of two overflows it is told
        return binary(left, children_[1].integer(scope));
      }
    }
  }

  bool holds(const Scope& scope) const {
    const Value found = value(scope);
    if (!found.boolean()) throw ExprError(text() + " is " + repr(found) + ", not a bool, and so no condition");
    return *found.boolean();
  }

  std::int64_t integer(const Scope& scope) const {
    const Value found = value(scope);
    if (!found.integer()) throw ExprError(text() + " is " + repr(found) + ", not an int");
    return *found.integer();
  }

  /// The tree in words.
  std::string text() const {
    switch (row_->op) {
      case Op::constant:
        return repr(value_);
      case Op::field:
      case Op::fact:
        return name_;
      case Op::stride:
      case Op::extent:
        return std::string(row_->tag) + "(" + name_ + ", " + std::to_string(axis_) + ")";
      case Op::negation:
        return "not " + children_[0].within(3);
      case Op::one_of:
        return children_[0].within(5) + " in " + tuple_text();
      case Op::all_of:
      case Op::any_of:
        return children_.size() < 2 ? call_text() : joined(row_->precedence + 1);
      case Op::ceil_div:
      case Op::minimum:
      case Op::maximum:
      case Op::is_zero:
      case Op::select:
        return call_text();
      default: {
        const bool compares = row_->precedence == 4;
        const int left = compares ? 5 : row_->precedence, right = compares ? 5 : row_->precedence + 1;
        return children_[0].within(left) + " " + row_->sign + " " + children_[1].within(right);
      }
    }
  }

 private:
  enum class Op {
    constant, field, fact, stride, extent, add, sub, mul, floor_div, ceil_div, minimum, maximum,
    lt, le, gt, ge, eq, ne, one_of, all_of, any_of, negation, is_zero, select
  };
  struct Row {
    const char* tag;
    Op op;
    int operands;
    const char* sign;
    int precedence;
  };

  explicit Expr(const Row& row) : row_(&row) {}

  static const Row& row_of(const std::string& tag) {
    static const Row rows[] = {
        {"const", Op::constant, 1, "", 9},     {"field", Op::field, 1, "", 9},
        {"fact", Op::fact, 1, "", 9},          {"stride", Op::stride, 2, "", 9},
        {"extent", Op::extent, 2, "", 9},      {"add", Op::add, 2, "+", 5},
        {"sub", Op::sub, 2, "-", 5},           {"mul", Op::mul, 2, "*", 6},
        {"floor_div", Op::floor_div, 2, "//", 6}, {"ceil_div", Op::ceil_div, 2, "", 9},
        {"min", Op::minimum, 2, "", 9},        {"max", Op::maximum, 2, "", 9},
        {"lt", Op::lt, 2, "<", 4},             {"le", Op::le, 2, "<=", 4},
        {"gt", Op::gt, 2, ">", 4},             {"ge", Op::ge, 2, ">=", 4},
        {"eq", Op::eq, 2, "==", 4},            {"ne", Op::ne, 2, "!=", 4},
        {"one_of", Op::one_of, 2, "in", 4},    {"all_of", Op::all_of, -1, "and", 2},
        {"any_of", Op::any_of, -1, "or", 1},   {"not", Op::negation, 1, "", 3},
        {"is_zero", Op::is_zero, 1, "", 9},    {"select", Op::select, 3, "", 9},
    };
    for (const Row& row : rows) {
      if (tag == row.tag) return row;
    }
    throw BundleError("no expression has the tag " + tag);
  }

  static std::size_t position(const Names& names, const std::string& name) {
    const auto found = names.fields.find(name);
    if (found == names.fields.end()) throw BundleError("the request has no field " + detail::quoted(name));
    return found->second;
  }

  const Value& held_field(const Scope& scope) const {
    if (!scope.fields || index_ >= scope.fields->size()) throw ExprError("no field " + detail::quoted(name_) + " here");
    return (*scope.fields)[index_];
  }

  bool is_zero_field(const Scope& scope) const {
    const Value& found = held_field(scope);
    if (found.integer()) return *found.integer() == 0;
    if (found.real()) return *found.real() == 0.0;
    throw ExprError("field " + name_ + " is " + shown(found) + " of type " + found.type_name() + ", not a number");
  }

  Value checked_field(const Scope& scope) const {
    const Value& found = held_field(scope);
    if (found.is_null() || found.real()) {
      throw ExprError("field " + name_ + " is " + shown(found) + " of type " + found.type_name() +
                      "; expressions hold int, bool and str");
    }
    return found;
  }

  Value axis(const Scope& scope) const {
    const Geometries none;
    const Geometries& known = scope.tensors ? *scope.tensors : none;
    const auto found = known.find(name_);
    if (found == known.end()) throw ExprError("no tensor " + detail::quoted(name_) + " here");
    const auto& numbers = row_->op == Op::stride ? found->second.strides : found->second.shape;
    const auto count = static_cast<std::int64_t>(numbers.size());
    const std::int64_t at = axis_ < 0 ? axis_ + count : axis_;
    if (at < 0 || at >= count) throw ExprError(text() + ": the tensor has " + std::to_string(count) + " axes");
    return numbers[static_cast<std::size_t>(at)];
  }

  Value binary(std::int64_t left, std::int64_t right) const {
    switch (row_->op) {
      case Op::lt:
        return left < right;
      case Op::le:
        return left <= right;
      case Op::gt:
        return left > right;
      case Op::ge:
        return left >= right;
      default:
        return arithmetic(left, right);
    }
  }

  bool equality(const Scope& scope) const {
    const Value left = children_[0].value(scope), right = children_[1].value(scope);
    if (!left.same_type(right)) {
      throw ExprError(text() + ": " + repr(left) + " and " + repr(right) + " are of different types");
    }
    return (left == right) == (row_->op == Op::eq);
  }

  bool is_one_of(const Value& found) const {
    for (const Value& each : values_) {
      if (!found.same_type(each)) throw ExprError(text() + ": " + repr(found) + " is of another type than the values");
      if (found == each) return true;
    }
    return false;
  }

  std::int64_t arithmetic(std::int64_t left, std::int64_t right) const {
    const int128 a = left, b = right;
    int128 found = 0;
    switch (row_->op) {
      case Op::add:
        found = a + b;
        break;
      case Op::sub:
        found = a - b;
        break;
      case Op::mul:
        found = a * b;
        break;
      case Op::minimum:
        found = a < b ? a : b;
        break;
      case Op::maximum:
        found = a < b ? b : a;
        break;
      default:
        if (b == 0) throw ExprError(text() + ": " + std::to_string(left) + " divided by zero");
        found = row_->op == Op::floor_div ? detail::floor_quotient(a, b) : -detail::floor_quotient(-a, b);
    }
    if (found < std::numeric_limits<std::int64_t>::min() || found > std::numeric_limits<std::int64_t>::max()) {
      throw ExprOverflow(text() + ": " + std::to_string(left) + " and " + std::to_string(right) + " give " +
                         detail::integer_text(found) + ", outside signed 64 bits");
    }
    return static_cast<std::int64_t>(found);
  }

  std::string within(int level) const { return row_->precedence >= level ? text() : "(" + text() + ")"; }

  std::string call_text() const {
    std::string shown = std::string(row_->tag) + "(";
    for (std::size_t i = 0; i < children_.size(); ++i) shown += (i ? ", " : "") + children_[i].text();
    return shown + ")";
  }

  std::string joined(int level) const {
    std::string shown;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      shown += (i ? std::string(" ") + row_->sign + " " : "") + children_[i].within(level);
    }
    return shown;
  }

  std::string tuple_text() const {
    std::string shown = "(";
    for (std::size_t i = 0; i < values_.size(); ++i) shown += (i ? ", " : "") + repr(values_[i]);
    return shown + (values_.size() == 1 ? ",)" : ")");
  }

  const Row* row_;
  std::vector<Expr> children_;
  std::string name_;
  std::size_t index_ = 0;
  std::int64_t axis_ = 0;
  Value value_;
  std::vector<Value> values_;
};

}  // namespace kinfolk
