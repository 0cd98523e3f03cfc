// A libamdhip64.so of one device whose memory is this host's and whose kernels do nothing: it writes down what reaches it.
// The layout of hipDeviceProp_tR0600 is that of hip_runtime_api.h since HIP 6. HIP_STUB_LOG names the file that is
// written, HIP_STUB_VERSION the version that is told, HIP_STUB_FAIL the call that fails with hipErrorOutOfMemory.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum Error { success = 0, out_of_memory = 2, not_found = 500 };

struct Properties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned int luid_node_mask;
  std::size_t total_global_mem;
  std::size_t shared_mem_per_block;
  int regs_per_block;
  int warp_size;
  std::size_t mem_pitch;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  int clock_rate;
  std::size_t total_const_mem;
  int major;
  int minor;
  std::size_t texture_alignment;
  std::size_t texture_pitch_alignment;
  int device_overlap;
  int multi_processor_count;
};
constexpr std::size_t arch_name_offset = 1160;  // gcnArchName, after 63 + 32 reserved numbers

std::string setting(const char* name) {
  const char* found = std::getenv(name);
  return found ? found : "";
}

void tell(const std::string& line) {
  const std::string path = setting("HIP_STUB_LOG");
  if (std::FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

int done(const char* call, const std::string& passed = "") {
  tell(std::string(call) + (passed.empty() ? "" : " " + passed));
  return setting("HIP_STUB_FAIL") == call ? out_of_memory : success;
}

std::string hex(const void* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text;
}

std::string number(std::uintptr_t value) { return std::to_string(value); }
std::string number(const void* value) { return number(reinterpret_cast<std::uintptr_t>(value)); }

int next_handle = 0x100;
void* handle() { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(next_handle += 8)); }
bool capturing = false;

}  // namespace

extern "C" {

int hipRuntimeGetVersion(int* version) {
  *version = std::atoi(setting("HIP_STUB_VERSION").c_str());
  return done("hipRuntimeGetVersion");
}
int hipGetDeviceCount(int* count) {
  *count = 1;
  return done("hipGetDeviceCount");
}
const char* hipGetErrorString(int) { return "as requested"; }
const char* hipGetErrorName(int) { return "error"; }
int hipGetDevice(int* device) {
  *device = 0;
  return success;
}
int hipSetDevice(int device) { return done("hipSetDevice", std::to_string(device)); }
int hipGetDevicePropertiesR0600(void* where, int device) {
  Properties found{};
  std::strcpy(found.name, "AMD Instinct MI300X");
  found.shared_mem_per_block = 65536;
  found.warp_size = 64;
  found.max_threads_per_block = 1024;
  found.multi_processor_count = 304;
  std::memcpy(where, &found, sizeof found);
  std::strcpy(static_cast<char*>(where) + arch_name_offset, "gfx942:sramecc+:xnack-");
  return done("hipGetDeviceProperties", std::to_string(device));
}
int hipModuleLoadData(void** module, const void* image) {
  *module = handle();
  return done("hipModuleLoadData", hex(image, 20));
}
int hipModuleUnload(void*) { return done("hipModuleUnload"); }
int hipModuleGetFunction(void** function, void*, const char* name) {
  *function = handle();
  const int status = done("hipModuleGetFunction", name);
  return std::strcmp(name, "nothing") == 0 ? not_found : status;
}
int hipModuleLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* stream, void** parameters, void** extra) {
  std::string text = std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + " " + std::to_string(bx) +
                     "," + std::to_string(by) + "," + std::to_string(bz) + " " + std::to_string(shared) + " " +
                     number(stream) + " " + (parameters ? "parameters" : "none");
  for (int i = 0; extra && extra[i] != reinterpret_cast<void*>(3); i += 2) {
    if (extra[i] == reinterpret_cast<void*>(1) && extra[i + 2] == reinterpret_cast<void*>(2)) {
      text += " " + hex(extra[i + 1], *static_cast<std::size_t*>(extra[i + 3]));
    }
  }
  return done("hipModuleLaunchKernel", text);
}
int hipMallocAsync(void** address, std::size_t size, void* stream) {
  *address = std::aligned_alloc(256, (size + 255) / 256 * 256);
  return done("hipMallocAsync", std::to_string(size) + " " + number(stream));
}
int hipFreeAsync(void* address, void* stream) {
  std::free(address);
  return done("hipFreeAsync", number(stream));
}
int hipMemcpyAsync(void* to, const void* from, std::size_t size, int kind, void* stream) {
  std::memcpy(to, from, size);
  return done("hipMemcpyAsync", std::to_string(size) + " " + std::to_string(kind) + " " + number(stream));
}
int hipMemsetAsync(void* to, int value, std::size_t size, void* stream) {
  std::memset(to, value, size);
  return done("hipMemsetAsync", std::to_string(value) + " " + std::to_string(size) + " " + number(stream));
}
int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  *stream = handle();
  return done("hipStreamCreateWithFlags", std::to_string(flags));
}
int hipStreamDestroy(void* stream) { return done("hipStreamDestroy", number(stream)); }
int hipStreamSynchronize(void* stream) { return done("hipStreamSynchronize", number(stream)); }
int hipEventCreate(void** event) {
  *event = handle();
  return done("hipEventCreate");
}
int hipEventDestroy(void*) { return done("hipEventDestroy"); }
int hipEventRecord(void*, void* stream) { return done("hipEventRecord", number(stream)); }
int hipStreamWaitEvent(void* stream, void*, unsigned flags) {
  return done("hipStreamWaitEvent", number(stream) + " " + std::to_string(flags));
}
int hipEventSynchronize(void*) { return done("hipEventSynchronize"); }
int hipEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1.5F;
  return done("hipEventElapsedTime");
}
int hipStreamIsCapturing(void*, int* status) {
  *status = capturing ? 1 : 0;
  return success;
}
int hipStreamBeginCapture(void* stream, int mode) {
  capturing = true;
  return done("hipStreamBeginCapture", number(stream) + " " + std::to_string(mode));
}
int hipStreamEndCapture(void* stream, void** graph) {
  capturing = false;
  *graph = handle();
  return done("hipStreamEndCapture", number(stream));
}
int hipGraphInstantiateWithFlags(void** executable, void*, unsigned long long flags) {
  *executable = handle();
  return done("hipGraphInstantiateWithFlags", std::to_string(flags));
}
int hipGraphLaunch(void*, void* stream) { return done("hipGraphLaunch", number(stream)); }
int hipGraphDestroy(void*) { return done("hipGraphDestroy"); }
int hipGraphExecDestroy(void*) { return done("hipGraphExecDestroy"); }

}  // extern "C"
