// A host of MLA decode without Python: a hundred steps, each asked of a bundle, bound, packed and launched.
//
//   kinfolk emit mla --arch ARCH --stage bundle --all -o mla-bundle
//   g++ -std=c++17 -I "$(python -c 'from kinfolk_runtime.bundles import include_folder; print(include_folder())')" host.cpp -o host
//   ./host mla-bundle
//
// The driver is a fake one, which records what a real one would be told: `Driver` is all that a real one has to do
// (hipMalloc, hipModuleLoadData, hipModuleGetFunction, hipModuleLaunchKernel with HIP_LAUNCH_PARAM_BUFFER_POINTER).
#include <kinfolk/bundle.hpp>

#include <iostream>

namespace {

struct Driver {
  virtual ~Driver() = default;
  virtual std::uint64_t allocate(std::int64_t bytes) = 0;
  virtual void load(const std::string& code, const std::string& symbol) = 0;
  virtual void launch(const std::string& symbol, const std::array<std::int64_t, 3>& grid, std::int64_t block,
                      const std::vector<unsigned char>& arguments) = 0;
};

class FakeDriver : public Driver {
 public:
  std::uint64_t allocate(std::int64_t bytes) override {
    const std::uint64_t address = next_;
    next_ += (static_cast<std::uint64_t>(bytes) + 255) / 256 * 256;
    return address;
  }

  void load(const std::string& code, const std::string& symbol) override {
    std::cout << "load " << symbol << " " << code.size() << " bytes\n";
  }

  void launch(const std::string& symbol, const std::array<std::int64_t, 3>& grid, std::int64_t block,
              const std::vector<unsigned char>& arguments) override {
    std::cout << "launch " << symbol << " " << grid[0] << " " << grid[1] << " " << grid[2] << " " << block << " ";
    for (const unsigned char each : arguments) std::cout << "0123456789abcdef"[each >> 4] << "0123456789abcdef"[each & 15];
    std::cout << "\n";
  }

 private:
  std::uint64_t next_ = 0x7f0000000000;
};

struct Step {
  std::int64_t heads, sequences, longest, page_size, pages, table_width;
  double scale;
};

/// A hundred steps of growing lengths; some ask for what no kernel does.
std::vector<Step> steps() {
  std::vector<Step> every;
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t heads = i % 10 == 3 ? 24 : 16 * (1 + i % 8);
    const std::int64_t page_size = i % 10 == 7 ? 24 : 16;
    const std::int64_t sequences = i % 25 == 24 ? 65536 : 1 + i % 6;
    const std::int64_t longest = 1 + 37 * i;
    const std::int64_t width = (longest + page_size - 1) / page_size + i % 3;
    const double scale = 1.0 / (8.0 + static_cast<double>(i));
    every.push_back({heads, sequences, longest, page_size, sequences * width, width, scale});
  }
  return every;
}

kinfolk::Fields fields_of(const Step& step) {
  return {{"num_heads", step.heads},     {"num_seqs", step.sequences}, {"total_q", step.sequences},
          {"max_seqlen_q", 1},           {"max_seqlen_k", step.longest}, {"absorbed_query", true},
          {"page_size", step.page_size}, {"num_pages", step.pages},    {"dtype", "bf16"},
          {"kv_dtype", "bf16"},          {"causal", true},             {"scale", step.scale}};
}

std::map<std::string, std::vector<std::int64_t>> shapes_of(const Step& step) {
  return {{"qa", {step.sequences, step.heads, 576}},
          {"c_kv", {step.pages, step.page_size, 512}}, {"k_rope", {step.pages, step.page_size, 64}},
          {"cu_seqlens_q", {step.sequences + 1}},    {"cu_seqlens_k", {step.sequences + 1}},
          {"block_table", {step.sequences, step.table_width}}, {"status", {1}},
          {"out", {step.sequences, step.heads, 512}}, {"lse", {step.sequences, step.heads}}};
}

std::string dtype_of(const std::string& name) {
  if (name == "lse") return "f32";
  return name == "cu_seqlens_q" || name == "cu_seqlens_k" || name == "block_table" || name == "status" ? "i32" : "bf16";
}

kinfolk::Tensors allocated(const Step& step, Driver& driver) {
  kinfolk::Tensors tensors;
  for (const auto& [name, shape] : shapes_of(step)) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    const std::uint64_t address = driver.allocate(4 * elements);
    tensors[name] = {address, dtype_of(name), shape, kinfolk::Tensor::contiguous(shape)};
  }
  return tensors;
}

void run(const kinfolk::Bundle& bundle, const Step& step, Driver& driver, std::vector<std::string>& loaded) {
  const auto request = bundle.request(fields_of(step));
  std::cout << "step " << request.text() << "\n";
  try {
    const kinfolk::Plan plan = bundle.dispatch(request);
    kinfolk::Tensors tensors = allocated(step, driver);
    tensors.merge(plan.workspace(driver.allocate(plan.workspace_bytes())));
    for (const auto& [name, tensor] : tensors) std::cout << "tensor " << name << " " << tensor.address << "\n";
    for (const kinfolk::Launch& launch : plan.bind(tensors)) {
      if (launch.grid[0] == 0) continue;  // its condition does not hold
      const std::string& symbol = launch.kernel->symbol;
      if (std::find(loaded.begin(), loaded.end(), symbol) == loaded.end()) {
        driver.load(bundle.code(*launch.kernel), symbol);
        loaded.push_back(symbol);
      }
      driver.launch(symbol, launch.grid, launch.block, launch.arguments);
    }
  } catch (const kinfolk::NoCandidate& error) {
    for (const auto& refusal : error.refusals) std::cout << "refused " << refusal.code << " " << refusal.sentence() << "\n";
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: host BUNDLE\n";
    return 2;
  }
  try {
    const auto bundle = kinfolk::Bundle::load(words[1]);
    FakeDriver driver;
    std::vector<std::string> loaded;
    for (const Step& step : steps()) run(bundle, step, driver, loaded);
  } catch (const kinfolk::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
