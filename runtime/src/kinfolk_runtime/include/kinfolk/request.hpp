// Requests as bundles have them: fields that take exactly what they say, and how they must fit each other.
#pragma once

#include <kinfolk/refusal.hpp>

#include <memory>

namespace kinfolk {

namespace detail {

inline double real_from(const Json& data) { return std::strtod(data.get_ref<const std::string&>().c_str(), nullptr); }

/// What one field takes, and the rule and the remedy for a value that it does not.
class Field {
 public:
  explicit Field(const Json& data)
      : name(data.at("name")), means(data.at("means")), launch(data.at("launch")), kind_(data.at("kind")),
        optional_(data.at("optional")) {
    if (data.contains("default")) default_value = value_from(data.at("default"));
    if (data.contains("values")) {
      for (const Json& each : data.at("values")) values_.push_back(value_from(each));
    } else if (kind_ == "int") {
      minimum_ = data.at("minimum");
      maximum_ = data.at("maximum").is_null() ? std::numeric_limits<std::int64_t>::max()
                                              : data.at("maximum").get<std::int64_t>();
      step_ = data.at("step");
      rule_ = data.at("rule");
    } else if (kind_ == "float") {
      low_ = real_from(data.at("minimum"));
      high_ = real_from(data.at("maximum"));
      above_low_ = data.at("exclusive_minimum");
      below_high_ = data.at("exclusive_maximum");
      rule_ = data.at("rule");
    }
  }

  std::string name, means;
  bool launch;
  std::optional<Value> default_value;

  /// The refusal of a value, or nothing; `owner` is the request's class.
  std::optional<Refusal> judge(const Value& value, const std::string& owner, const std::string& family) const {
    if (optional_ && value.is_null()) return std::nullopt;
    if (value.type_name() != kind_) return refusal(value, owner, family, "type", "a Python " + kind_, type_remedy(value));
    if (!values_.empty()) {
      for (const Value& each : values_) {
        if (each == value) return std::nullopt;
      }
      return refusal(value, owner, family, "range", listing(values_), "Pass " + listing(values_) + ".");
    }
    if (const auto* number = value.integer()) {
      if (*number >= minimum_ && *number <= maximum_ && *number % step_ == 0) return std::nullopt;
      return refusal(value, owner, family, "range", rule_, "Pass " + nearest(*number) + ".");
    }
    if (const auto* number = value.real()) {
      if (holds(*number)) return std::nullopt;
      return refusal(value, owner, family, "range", rule_, "Pass a float that is " + rule_ + ".");
    }
    if (value.text() && value.text()->empty()) {
      return refusal(value, owner, family, "range", "a str of at least one character", "Pass a name.");
    }
    return std::nullopt;
  }

  Refusal refusal(const Value& value, const std::string& owner, const std::string& family, const std::string& reason,
                  const std::string& rule, const std::string& remedy) const {
    const std::string found = reason == "type" ? " of type " + value.type_name() : "";
    const std::string because = owner + "." + name + " is checked exactly, got " + shown(value) + found;
    return {"request." + name + "." + reason, "invalid", name, value, rule, because, remedy, family};
  }

 private:
  std::string type_remedy(const Value& value) const {
    if (!values_.empty()) return "Pass " + listing(values_) + ".";
    if (kind_ == "bool") return "Pass True or False.";
    if (kind_ == "str") return "Pass a str.";
    if (kind_ == "int") {
      const auto* real = value.real();
      const bool whole = real && *real >= -0x1p63 && *real < 0x1p63 && std::trunc(*real) == *real;
      return whole ? "Pass " + nearest(static_cast<std::int64_t>(*real)) + ", a Python int." : "Pass a Python int.";
    }
    const auto* number = value.integer();
    const std::int64_t exact = std::int64_t{1} << 53;
    if (number && *number < exact && *number > -exact && holds(static_cast<double>(*number))) {
      return "Pass " + real_text(static_cast<double>(*number)) + ".";
    }
    return "Pass a float that is " + rule_ + ".";
  }

  bool holds(double number) const {
    const bool low = above_low_ ? number > low_ : number >= low_;
    const bool high = below_high_ ? number < high_ : number <= high_;
    return std::isfinite(number) && low && high;
  }

  std::string nearest(std::int64_t value) const {
    const int128 step = step_;
    const int128 first = -floor_quotient(-int128{minimum_}, step) * step;
    const int128 rounded = -floor_quotient(-int128{value}, step) * step;
    const int128 last = floor_quotient(maximum_, step) * step;
    const int128 least = rounded > first ? rounded : first;
    return integer_text(least < last ? least : last);
  }

  std::string kind_;
  bool optional_;
  std::vector<Value> values_;
  std::int64_t minimum_ = 0, maximum_ = 0, step_ = 1;
  double low_ = 0, high_ = 0;
  bool above_low_ = false, below_high_ = false;
  std::string rule_;
};

struct Relation {
  std::size_t field;
  Expr condition;
  Text rule, remedy;
};

/// A request class: its fields in order, and the relations between them.
struct RequestClass {
  std::string name, family;
  std::vector<Field> fields;
  std::vector<Relation> relations;
  Names names;

  void read(const Json& data) {
    name = data.at("name");
    for (const Json& each : data.at("fields")) {
      fields.emplace_back(each);
      names.fields[fields.back().name] = fields.size() - 1;
    }
    for (const Json& each : data.at("relations")) {
      const std::size_t at = names.fields.at(each.at("field").get<std::string>());
      relations.push_back({at, Expr::read(each.at("condition"), names), Text::read(each.at("rule"), names),
                           Text::read(each.at("remedy"), names)});
    }
  }

  /// The first thing that is wrong with the values of the fields, or nothing.
  std::optional<Refusal> judge(const std::vector<Value>& values) const {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (auto wrong = fields[i].judge(values[i], name, family)) return wrong;
    }
    const Scope scope{&values, nullptr};
    for (const Relation& relation : relations) {
      bool holds = false;
      try {
        holds = relation.condition.holds(scope);
      } catch (const ExprOverflow&) {
      }
      if (!holds) {
        const Field& blamed = fields[relation.field];
        const std::string rule = relation.rule.in(scope), remedy = relation.remedy.in(scope);
        return blamed.refusal(values[relation.field], name, family, "range", rule, remedy);
      }
    }
    return std::nullopt;
  }
};

}  // namespace detail

using Fields = std::map<std::string, Value>;

/// A family's problem, judged: every field is there, and takes its value.
class Request {
 public:
  /// The value of a field; throws for a name that is none.
  const Value& operator[](const std::string& name) const { return values_[kind_->names.fields.at(name)]; }
  const std::vector<Value>& values() const { return values_; }

  /// All fields, as Python prints a request.
  std::string text() const {
    std::string told = kind_->name + "(";
    for (std::size_t i = 0; i < values_.size(); ++i) {
      told += (i ? ", " : "") + kind_->fields[i].name + "=" + repr(values_[i]);
    }
    return told + ")";
  }

 private:
  friend class Bundle;
  Request(std::shared_ptr<const detail::RequestClass> kind, std::vector<Value> values)
      : kind_(std::move(kind)), values_(std::move(values)) {}

  std::shared_ptr<const detail::RequestClass> kind_;
  std::vector<Value> values_;
};

}  // namespace kinfolk
