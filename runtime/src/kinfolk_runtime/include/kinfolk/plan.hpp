// What a request launches: tensors meet the plan, everything is checked, and arguments are packed as kernels read them.
#pragma once

#include <kinfolk/request.hpp>

#include <algorithm>
#include <array>
#include <filesystem>

namespace kinfolk {

/// Memory as a host has it: a device address, the element type's name in bundles, extents, strides in elements.
struct Tensor {
  std::uint64_t address = 0;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  /// Row-major strides of a shape.
  static std::vector<std::int64_t> contiguous(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return strides;
  }
};

using Tensors = std::map<std::string, Tensor>;

/// A kernel of a bundle: its name in the code object, and where that lies.
struct Kernel {
  std::string symbol, spec_digest;
  std::filesystem::path code;
  std::string code_sha256;
  std::int64_t argument_bytes = 0;
  struct Place {
    std::string name, kind;
    std::size_t offset, size;
    std::int64_t minimum = INT64_MIN, maximum = INT64_MAX;  // of an integer
  };
  std::vector<Place> places;
};

/// One launch, ready for a driver: workgroups, lanes of a workgroup, the argument block.
struct Launch {
  const Kernel* kernel = nullptr;
  std::array<std::int64_t, 3> grid{};
  std::int64_t block = 0;
  std::vector<unsigned char> arguments;
};

namespace detail {

struct Axis {
  Expr extent;
  bool at_least;
};

struct Binding {
  std::string name, role, dtype, access;
  std::int64_t element_bytes, alignment;
  std::vector<Axis> shape;
  std::vector<Expr> strides;
  Expr minimum_bytes;

  Binding(const Json& data, const Names& names)
      : name(data.at("name")), role(data.at("role")), dtype(data.at("dtype")), access(data.at("access")),
        element_bytes(data.at("element_bytes")), alignment(data.at("alignment")),
        minimum_bytes(Expr::read(data.at("minimum_bytes"), names)) {
    for (const Json& axis : data.at("shape")) shape.push_back({Expr::read(axis.at("extent"), names), axis.at("at_least")});
    for (const Json& step : data.at("strides")) strides.push_back(Expr::read(step, names));
  }
};

struct Argument {
  std::string name, kind;
  std::string binding;
  std::optional<Expr> expr;
  std::size_t field = 0;
  std::optional<double> constant;

  Argument(const Json& data, const Names& names) : name(data.at("name")), kind(data.at("kind")) {
    const Json& value = data.at("value");
    if (value.is_string()) {
      binding = value;
    } else if (value.is_array()) {
      expr = Expr::read(value, names);
    } else if (value.contains("field")) {
      field = names.fields.at(value.at("field").get<std::string>());
    } else {
      constant = real_from(value.at("float"));
    }
  }
};

struct LaunchPlan {
  Expr condition;
  std::vector<Expr> grid;
  std::int64_t block;
  std::vector<Argument> arguments;

  LaunchPlan(const Json& data, const Names& names)
      : condition(Expr::read(data.at("condition"), names)), block(data.at("block")) {
    for (const Json& count : data.at("grid")) grid.push_back(Expr::read(count, names));
    if (grid.size() != 3) throw BundleError("a grid has three axes");
    for (const Json& each : data.at("arguments")) arguments.emplace_back(each, names);
  }
};

struct PlanData {
  std::vector<LaunchPlan> launches;
  std::vector<Binding> bindings;
  std::vector<std::string> outputs;
  Expr workspace_bytes;

  PlanData(const Json& data, const Names& names) : workspace_bytes(Expr::read(data.at("workspace_bytes"), names)) {
    for (const Json& each : data.at("launches")) launches.emplace_back(each, names);
    for (const Json& each : data.at("bindings")) bindings.emplace_back(each, names);
    outputs = data.at("outputs").get<std::vector<std::string>>();
  }
};

inline std::string tuple_text(const std::vector<std::int64_t>& numbers) {
  std::string told = "(";
  for (std::size_t i = 0; i < numbers.size(); ++i) told += (i ? ", " : "") + std::to_string(numbers[i]);
  return told + (numbers.size() == 1 ? ",)" : ")");
}

inline std::string hexadecimal(std::uint64_t number) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, 16).ptr;
  return "0x" + std::string(buffer, end);
}

inline bool is_empty(const Tensor& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

/// Bytes from a tensor's address to the end of its last element.
inline int128 reach_of(const Tensor& tensor, std::int64_t element_bytes) {
  if (is_empty(tensor)) return 0;
  int128 last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) last += int128{tensor.shape[i] - 1} * tensor.strides[i];
  return (last + 1) * element_bytes;
}

inline void check_rank(const Binding& binding, const Tensor& held) {
  if (held.shape.size() == binding.shape.size()) return;
  std::string extents;
  for (const Axis& axis : binding.shape) extents += (extents.empty() ? "" : ", ") + axis.extent.text();
  throw BindError(binding.name + " has shape " + tuple_text(held.shape) + ", " + std::to_string(binding.shape.size()) +
                  " axes (" + extents + ") are needed.");
}

inline void check_strides_are_counts(const Binding& binding, const Tensor& held) {
  for (std::size_t i = 0; i < held.strides.size(); ++i) {
    if (held.shape[i] < 0) {
      throw BindError(binding.name + ": the extent of axis " + std::to_string(i) + " is " +
                      std::to_string(held.shape[i]) + ", at least 0 is needed.");
    }
    if (held.strides[i] < 0) {
      throw BindError(binding.name + ": the stride of axis " + std::to_string(i) + " is " +
                      integer_text(int128{held.strides[i]} * binding.element_bytes) + " bytes, a multiple of the element's " +
                      std::to_string(binding.element_bytes) + " that is not negative is needed. Pass a copy.");
    }
  }
}

inline void check_layout(const Binding& binding, const Tensor& held, const Scope& scope) {
  for (std::size_t i = 0; i < held.shape.size(); ++i) {
    const Axis& axis = binding.shape[i];
    const std::int64_t wanted = axis.extent.integer(scope), found = held.shape[i];
    if (found < wanted || (found > wanted && !axis.at_least)) {
      throw BindError(binding.name + ": the extent of axis " + std::to_string(i) + " is " + std::to_string(found) + ", " +
                      (axis.at_least ? "at least " : "") + std::to_string(wanted) + " (" + axis.extent.text() +
                      ") is needed; its shape is " + tuple_text(held.shape) +
                      ". Pass a tensor of that shape or dispatch for this one.");
    }
  }
  const bool empty = is_empty(held);
  for (std::size_t i = 0; i < held.strides.size(); ++i) {
    const std::int64_t wanted = binding.strides[i].integer(scope);
    if (!empty && held.shape[i] > 1 && held.strides[i] != wanted) {
      throw BindError(binding.name + ": the stride of axis " + std::to_string(i) + " is " +
                      std::to_string(held.strides[i]) + " elements, " + std::to_string(wanted) +
                      " is needed; its strides are " + tuple_text(held.strides) + ". Pass a copy in that layout.");
    }
  }
  if (!empty && held.address % static_cast<std::uint64_t>(binding.alignment) != 0) {
    throw BindError(binding.name + ": its address " + hexadecimal(held.address) + " is no multiple of " +
                    std::to_string(binding.alignment) + " bytes, which the kernel's accesses need. Allocate it aligned, " +
                    "or slice it at a multiple of that.");
  }
}

inline void check_elements_apart(const Binding& binding, const Tensor& held) {
  if (is_empty(held)) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t i = 0; i < held.shape.size(); ++i) axes.emplace_back(held.strides[i], held.shape[i]);
  std::sort(axes.begin(), axes.end());
  int128 reach = 0;
  for (const auto& [step, extent] : axes) {
    if (extent > 1 && step <= reach) {
      throw BindError(binding.name + " is written, its elements overlap each other (strides " + tuple_text(held.strides) +
                      "). Pass memory of its own for each element.");
    }
    reach += int128{extent - 1} * step;
  }
}

}  // namespace detail

/// The plan of one request. It stays valid as long as any copy of its bundle.
class Plan {
 public:
  const std::string& candidate() const { return candidate_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const Request& request() const { return request_; }

  /// The names of the tensors that are bound, with their roles: input, output, workspace, status.
  std::vector<std::pair<std::string, std::string>> bindings() const {
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& binding : data_->bindings) found.emplace_back(binding.name, binding.role);
    return found;
  }

  /// Bytes of all workspaces, one after the other.
  std::int64_t workspace_bytes(const Geometries& tensors = {}) const {
    return data_->workspace_bytes.integer(Scope{&request_.values(), &tensors});
  }

  /// All workspaces by name, one after the other in one block of `workspace_bytes` at an address that is aligned for
  /// each: what a host adds to its own tensors.
  Tensors workspace(std::uint64_t address, const Geometries& tensors = {}) const {
    const Scope scope{&request_.values(), &tensors};
    std::int64_t step = 1;
    for (const auto& binding : data_->bindings) {
      if (binding.role == "workspace") step = std::max(step, binding.alignment);
    }
    Tensors found;
    for (const auto& binding : data_->bindings) {
      if (binding.role != "workspace") continue;
      Tensor held{address, binding.dtype, {}, {}};
      for (const auto& axis : binding.shape) held.shape.push_back(axis.extent.integer(scope));
      for (const auto& each : binding.strides) held.strides.push_back(each.integer(scope));
      const std::int64_t bytes = binding.minimum_bytes.integer(scope);
      address += static_cast<std::uint64_t>((bytes + step - 1) / step * step);
      found.emplace(binding.name, std::move(held));
    }
    return found;
  }

  /// The least bytes of one binding's memory; throws for a name that is none.
  std::int64_t minimum_bytes(const std::string& name, const Geometries& tensors = {}) const {
    for (const auto& binding : data_->bindings) {
      if (binding.name == name) return binding.minimum_bytes.integer(Scope{&request_.values(), &tensors});
    }
    throw BindError("the plan of " + candidate_ + " binds no " + detail::quoted(name));
  }

  /// Workgroups per axis of a launch; zeros where it is not launched.
  std::array<std::int64_t, 3> grid(std::size_t launch, const Geometries& tensors = {}) const {
    const Scope scope{&request_.values(), &tensors};
    const auto& planned = data_->launches.at(launch);
    std::array<std::int64_t, 3> counts{};
    if (!planned.condition.holds(scope)) return counts;
    for (std::size_t i = 0; i < 3; ++i) counts[i] = std::max<std::int64_t>(planned.grid[i].integer(scope), 0);
    return counts;
  }

  std::size_t launch_count() const { return kernels_.size(); }
  const Kernel& kernel(std::size_t launch) const { return *kernels_.at(launch); }
  std::int64_t block(std::size_t launch) const { return data_->launches.at(launch).block; }

  /// The argument block of a launch for tensors that lie at these addresses; nothing about them is checked.
  std::vector<unsigned char> arguments(std::size_t launch, const std::map<std::string, std::uint64_t>& addresses,
                                       const Geometries& tensors = {}) const {
    const Scope scope{&request_.values(), &tensors};
    const auto& planned = data_->launches.at(launch);
    const Kernel& kernel = *kernels_.at(launch);
    std::vector<unsigned char> block(static_cast<std::size_t>(kernel.argument_bytes), 0);
    for (std::size_t i = 0; i < planned.arguments.size(); ++i) {
      put(block, kernel.places[i], bits(kernel, kernel.places[i], planned.arguments[i], scope, addresses));
    }
    return block;
  }

  /// Check tensors against the plan and return the launches in order; nothing has been launched when this throws.
  ///
  /// `tensors` has every binding by name. Throws BindError, naming the tensor or the argument, the value and what is
  /// needed. What index tensors hold is not looked into, and memory of two tensors overlaps where their ranges do.
  std::vector<Launch> bind(const Tensors& tensors) const {
    Geometries geometries;
    std::map<std::string, std::uint64_t> addresses;
    check_names(tensors);
    for (const auto& binding : data_->bindings) {
      const Tensor& held = tensors.at(binding.name);
      if (held.dtype != binding.dtype) {
        throw BindError(binding.name + ": dtype is " + held.dtype + ", " + binding.dtype + " is needed.");
      }
      if (held.strides.size() != held.shape.size()) {
        throw BindError(binding.name + " has " + std::to_string(held.shape.size()) + " extents and " +
                        std::to_string(held.strides.size()) + " strides.");
      }
      detail::check_rank(binding, held);
      detail::check_strides_are_counts(binding, held);
      geometries[binding.name] = {held.shape, held.strides};
      addresses[binding.name] = held.address;
    }
    const Scope scope{&request_.values(), &geometries};
    for (const auto& binding : data_->bindings) {
      const Tensor& held = tensors.at(binding.name);
      detail::check_layout(binding, held, scope);
      if (binding.access != "read") detail::check_elements_apart(binding, held);
    }
    check_overlaps(tensors);
    std::vector<Launch> launches;
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      check_grid(i, scope);
      Launch launch;
      launch.kernel = kernels_[i];
      launch.grid = grid(i, geometries);
      launch.block = data_->launches[i].block;
      launch.arguments = arguments(i, addresses, geometries);
      launches.push_back(std::move(launch));
    }
    return launches;
  }

 private:
  friend class Bundle;
  Plan(std::shared_ptr<const void> owner, const detail::PlanData* data, std::vector<const Kernel*> kernels,
       Request request, std::string candidate, std::vector<std::string> notes, const std::map<std::string, Value>* facts,
       std::string arch)
      : owner_(std::move(owner)), data_(data), kernels_(std::move(kernels)), request_(std::move(request)),
        candidate_(std::move(candidate)), notes_(std::move(notes)), facts_(facts), arch_(std::move(arch)) {}

  void check_names(const Tensors& tensors) const {
    std::string names, unknown, missing;
    for (const auto& binding : data_->bindings) {
      names += (names.empty() ? "" : ", ") + binding.name;
      if (tensors.count(binding.name) == 0) missing += (missing.empty() ? "" : ", ") + binding.name;
    }
    for (const auto& each : tensors) {
      const auto is_it = [&](const detail::Binding& binding) { return binding.name == each.first; };
      if (std::none_of(data_->bindings.begin(), data_->bindings.end(), is_it)) {
        unknown += (unknown.empty() ? "" : ", ") + each.first;
      }
    }
    if (!unknown.empty()) throw BindError("no tensor is named " + unknown + "; the plan binds " + names + ".");
    if (!missing.empty()) throw BindError(missing + " is missing; the plan takes " + names + ".");
  }

  void check_overlaps(const Tensors& tensors) const {
    for (const auto& written : data_->bindings) {
      if (written.access == "read") continue;
      const Tensor& mine = tensors.at(written.name);
      const int128 begin = mine.address, end = begin + detail::reach_of(mine, written.element_bytes);
      for (const auto& other : data_->bindings) {
        const Tensor& theirs = tensors.at(other.name);
        const int128 first = theirs.address, last = first + detail::reach_of(theirs, other.element_bytes);
        if (other.name != written.name && begin < end && first < last && begin < last && first < end) {
          throw BindError(written.name + " is written and shares memory with " + other.name +
                          ". Pass memory of its own for it.");
        }
      }
    }
  }

  void check_grid(std::size_t launch, const Scope& scope) const {
    const auto& planned = data_->launches[launch];
    if (!planned.condition.holds(scope)) return;
    const std::string& symbol = kernels_[launch]->symbol;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t count = planned.grid[i].integer(scope);
      const std::string axis(1, "xyz"[i]);
      if (count < 0) {
        throw BindError(symbol + ": grid " + axis + " is " + planned.grid[i].text() + " = " + std::to_string(count) +
                        " workgroups, at least 0 is needed.");
      }
      at_most(symbol, "grid " + axis, count, "max_grid_" + axis);
    }
    at_most(symbol, "block", planned.block, "max_workgroup_size");
  }

  void at_most(const std::string& symbol, const std::string& what, std::int64_t value, const std::string& fact) const {
    const auto found = facts_->find(fact);
    const std::int64_t* limit = found == facts_->end() ? nullptr : found->second.integer();
    if (limit && value > *limit) {
      throw BindError(symbol + ": " + what + " is " + std::to_string(value) + ", " + arch_ + " has at most " +
                      std::to_string(*limit) + " (" + fact + "). Dispatch a smaller problem.");
    }
  }

  std::uint64_t bits(const Kernel& kernel, const Kernel::Place& place, const detail::Argument& argument,
                     const Scope& scope, const std::map<std::string, std::uint64_t>& addresses) const {
    if (argument.kind == "pointer") {
      const auto found = addresses.find(argument.binding);
      if (found == addresses.end()) throw BindError("there is no address of " + argument.binding + ".");
      return found->second;
    }
    if (argument.expr) {
      const std::int64_t value = argument.expr->integer(scope);
      if (argument.kind == "i32" && (value < INT32_MIN || value > INT32_MAX)) {
        throw BindError(kernel.symbol + ": argument " + argument.name + " is " + argument.expr->text() + " = " + std::to_string(value) +
                        ", outside i32. Pass smaller tensors or strides.");
      }
      if (value < place.minimum || value > place.maximum) {
        throw BindError(kernel.symbol + ": argument " + argument.name + " is " + argument.expr->text() + " = " + std::to_string(value) +
                        ", its kernel takes " + std::to_string(place.minimum) + " to " + std::to_string(place.maximum) +
                        ". Pass smaller tensors or strides.");
      }
      return static_cast<std::uint64_t>(value);
    }
    const double value = argument.constant ? *argument.constant : *request_.values().at(argument.field).real();
    if (std::isfinite(value) && std::fabs(value) >= 0x1.ffffffp127) {
      throw BindError("argument " + argument.name + " is " + detail::real_text(value) + ", which f32 does not hold.");
    }
    const auto single = static_cast<float>(value);
    std::uint32_t held = 0;
    static_assert(sizeof held == sizeof single);
    std::copy_n(reinterpret_cast<const unsigned char*>(&single), sizeof held, reinterpret_cast<unsigned char*>(&held));
    return held;
  }

  static void put(std::vector<unsigned char>& block, const Kernel::Place& place, std::uint64_t bits) {
    for (std::size_t i = 0; i < place.size; ++i) block.at(place.offset + i) = static_cast<unsigned char>(bits >> (8 * i));
  }

  std::shared_ptr<const void> owner_;
  const detail::PlanData* data_;
  std::vector<const Kernel*> kernels_;
  Request request_;
  std::string candidate_;
  std::vector<std::string> notes_;
  const std::map<std::string, Value>* facts_;
  std::string arch_;
};

}  // namespace kinfolk
