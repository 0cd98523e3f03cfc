// Why something is not offered: limits as bundles have them, and the refusals they give, in Python's words.
#pragma once

#include <kinfolk/expr.hpp>

#include <optional>

namespace kinfolk {

/// One unmet limit: which field, the value found, the values taken, why, what to do instead, and who says so.
struct Refusal {
  std::string code, kind, field;
  Value value;
  std::string limit, because, remedy, plugin;

  /// The refusal in words, without the plugin.
  std::string sentence() const {
    const std::string found = value.text() ? *value.text() : shown(value);
    return field + " is " + found + ", supported: " + limit + " (" + because + "). " + remedy;
  }
};

/// Something declines, with every reason.
struct Refused : Error {
  Refused(const std::string& message, std::vector<Refusal> every) : Error(message), refusals(std::move(every)) {}
  std::vector<Refusal> refusals;
};

/// A request's fields are not what its class takes.
struct InvalidRequest : Refused {
  using Refused::Refused;
};

/// No candidate takes the request.
struct NoCandidate : Refused {
  using Refused::Refused;
};

/// The candidate that the request pins cannot take it; nothing else is tried.
struct PinRefused : Refused {
  using Refused::Refused;
};

/// A text with numbers in it.
class Text {
 public:
  static Text read(const Json& data, const Names& names) {
    Text made;
    for (const Json& piece : data) {
      if (piece.is_string()) {
        made.pieces_.emplace_back(piece.get<std::string>());
      } else {
        made.pieces_.emplace_back(Expr::read(piece, names));
      }
    }
    return made;
  }

  /// The text; a number that overflows is told as its expression.
  std::string in(const Scope& scope) const {
    std::string told;
    for (const auto& piece : pieces_) {
      if (const auto* words = std::get_if<std::string>(&piece)) {
        told += *words;
        continue;
      }
      const Expr& expr = std::get<Expr>(piece);
      try {
        told += str(expr.value(scope));
      } catch (const ExprOverflow&) {
        told += expr.text();
      }
    }
    return told;
  }

 private:
  std::vector<std::variant<std::string, Expr>> pieces_;
};

/// What a request is judged by: a limit that must hold, or a refusal that is certain.
class Judge {
 public:
  static Judge read(const Json& data, const Names& names) {
    if (data.contains("refusal")) return Judge(data.at("refusal"), 0, std::nullopt, Text());
    const std::string field = data.at("field");
    const auto found = names.fields.find(field);
    if (found == names.fields.end()) throw BundleError("a limit blames the field " + field + ", which there is none of");
    const Text remedy = Text::read(data.at("remedy"), names);
    return Judge(data, found->second, Expr::read(data.at("condition"), names), remedy);
  }

  /// The refusal, or nothing where the limit holds. A condition that overflows does not hold.
  std::optional<Refusal> judge(const std::vector<Value>& fields) const {
    if (!condition_) return said_;
    const Scope scope{&fields, nullptr};
    std::string excess;
    try {
      if (condition_->holds(scope)) return std::nullopt;
    } catch (const ExprOverflow& error) {
      excess = std::string("; ") + error.what();
    }
    Refusal refusal = said_;
    refusal.value = fields.at(field_);
    refusal.because += excess;
    refusal.remedy = remedy_.in(scope);
    return refusal;
  }

 private:
  Judge(const Json& data, std::size_t field, std::optional<Expr> condition, Text remedy)
      : field_(field), condition_(std::move(condition)), remedy_(std::move(remedy)) {
    said_.code = data.at("code");
    said_.kind = data.at("kind");
    said_.field = data.at("field");
    said_.limit = data.at("limit");
    said_.because = data.at("because");
    said_.plugin = data.at("plugin");
    if (!condition_) {
      said_.value = data.at("value").is_number_float() ? Value(data.at("value").get<double>())
                                                       : detail::value_from(data.at("value"));
      said_.remedy = data.at("remedy");
    }
  }

  std::size_t field_;
  std::optional<Expr> condition_;
  Text remedy_;
  Refusal said_;
};

inline std::vector<Judge> read_judges(const Json& data, const Names& names) {
  std::vector<Judge> found;
  for (const Json& each : data) found.push_back(Judge::read(each, names));
  return found;
}

}  // namespace kinfolk
