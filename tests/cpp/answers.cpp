// Answers requests, one JSON line each, for comparison with Python: what is selected and launched, or every refusal.
//
// A line holds `fields`, and where tensors are known their `tensors`: [address, dtype, shape, strides] by name. With
// `bind` they are checked as well. The answer has the same keys as the one that Python gives.
#include <kinfolk/bundle.hpp>

#include <iostream>

namespace {

using kinfolk::Json;

kinfolk::Value value_from(const Json& data) {
  if (data.is_object()) return std::strtod(data.at("float").get_ref<const std::string&>().c_str(), nullptr);
  return kinfolk::detail::value_from(data);
}

Json data_of(const kinfolk::Value& value) {
  if (const auto* held = value.boolean()) return *held;
  if (const auto* held = value.integer()) return *held;
  if (const auto* held = value.text()) return *held;
  if (value.real()) return {{"float", kinfolk::repr(value)}};
  return nullptr;
}

Json data_of(const kinfolk::Refusal& refusal) {
  return {{"code", refusal.code},       {"kind", refusal.kind},     {"field", refusal.field},
          {"value", data_of(refusal.value)}, {"limit", refusal.limit},   {"because", refusal.because},
          {"remedy", refusal.remedy},   {"plugin", refusal.plugin}, {"sentence", refusal.sentence()}};
}

Json data_of(const std::vector<kinfolk::Refusal>& refusals) {
  Json rows = Json::array();
  for (const auto& each : refusals) rows.push_back(data_of(each));
  return rows;
}

std::string hex(const std::vector<unsigned char>& bytes) {
  std::string text;
  for (const unsigned char each : bytes) text += {"0123456789abcdef"[each >> 4], "0123456789abcdef"[each & 15]};
  return text;
}

kinfolk::Tensors tensors_from(const Json& data) {
  kinfolk::Tensors tensors;
  for (const auto& [name, each] : data.items()) tensors[name] = {each[0], each[1], each[2], each[3]};
  return tensors;
}

Json launched(const kinfolk::Plan& plan, const Json& asked) {
  const kinfolk::Tensors tensors = tensors_from(asked.at("tensors"));
  if (asked.value("bind", false)) plan.bind(tensors);
  kinfolk::Geometries geometries;
  std::map<std::string, std::uint64_t> addresses;
  for (const auto& [name, each] : tensors) {
    geometries[name] = {each.shape, each.strides};
    addresses[name] = each.address;
  }
  Json launches = Json::array();
  for (std::size_t i = 0; i < plan.launch_count(); ++i) {
    launches.push_back({{"kernel", plan.kernel(i).spec_digest},
                        {"symbol", plan.kernel(i).symbol},
                        {"grid", plan.grid(i, geometries)},
                        {"block", plan.block(i)},
                        {"arguments", hex(plan.arguments(i, addresses, geometries))}});
  }
  Json sizes = Json::object();
  for (const auto& binding : plan.bindings()) sizes[binding.first] = plan.minimum_bytes(binding.first, geometries);
  Json told = {{"selected", plan.candidate()}, {"notes", plan.notes()}, {"launches", launches}, {"bytes", sizes},
               {"workspace", plan.workspace_bytes(geometries)}};
  return told;
}

Json answer(const kinfolk::Bundle& bundle, const Json& asked) {
  kinfolk::Fields fields;
  for (const auto& [name, value] : asked.at("fields").items()) fields[name] = value_from(value);
  if (const auto wrong = bundle.invalid(fields)) return {{"invalid", data_of(*wrong)}};
  const auto request = bundle.request(fields);
  const bool told = asked.value("told", false);
  if (!told && !bundle.judge(request).selected && bundle.uncovered(request).empty()) {
    return {{"refusals", data_of(bundle.judge(request).refusals)}};
  }
  try {
    const auto plan = bundle.dispatch(request);
    return asked.contains("tensors") ? launched(plan, asked) : Json{{"selected", plan.candidate()}};
  } catch (const kinfolk::Refused& error) {
    return {{"refusals", data_of(error.refusals)}, {"message", error.what()}};
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: answers BUNDLE < requests.jsonl\n";
    return 2;
  }
  try {
    const auto bundle = kinfolk::Bundle::load(words[1]);
    std::string line;
    while (std::getline(std::cin, line)) {
      Json said;
      try {
        said = answer(bundle, Json::parse(line));
      } catch (const kinfolk::BindError& error) {
        said = {{"bind", error.what()}};
      } catch (const kinfolk::ExprError& error) {
        said = {{"error", error.what()}};
      }
      std::cout << said.dump(-1, ' ', true) << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
