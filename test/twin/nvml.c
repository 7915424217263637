// A stand-in for NVIDIA's libnvidia-ml.so.1, for tests: it asks the twin's server (nvml-server.ts) over a Unix socket.
//
// The structures are NVML's, as its header and NVIDIA's pynvml declare them.
#include "ask.h"

#define NVML_SUCCESS 0
#define NVML_ERROR_INVALID_ARGUMENT 2
#define NVML_ERROR_INSUFFICIENT_SIZE 7
#define NVML_ERROR_DRIVER_NOT_LOADED 9
#define NVML_ERROR_UNKNOWN 999

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;

// A handle is the device's index plus one: never NULL.
static unsigned index_of(nvmlDevice_t device) { return (unsigned)(uintptr_t)device - 1; }

static nvmlReturn_t ask(const char *function, int device, const unsigned char *nonce, void *out, unsigned capacity,
                        unsigned *size) {
  int result = ask_twin(function, device, nonce, out, capacity, size);
  switch (result) {
    case TWIN_AWAY: return NVML_ERROR_DRIVER_NOT_LOADED;
    case TWIN_BROKEN: return NVML_ERROR_UNKNOWN;
    case TWIN_TOO_LONG: return NVML_ERROR_INSUFFICIENT_SIZE;
    default: return result;
  }
}

static nvmlReturn_t ask_number(const char *function, int device, unsigned *out) {
  return ask(function, device, NULL, out, sizeof *out, NULL);
}

static nvmlReturn_t ask_text(const char *function, int device, char *out, unsigned length) {
  unsigned size = 0;
  if (length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = ask(function, device, NULL, out, length - 1, &size);
  if (result == NVML_SUCCESS) out[size] = '\0';
  return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return ask("nvmlInit", -1, NULL, NULL, 0, NULL); }
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
EXPORT nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

// The texts of NVML itself, for the codes that tests use.
EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case 0: return "The operation was successful";
    case 1: return "NVML was not first initialized with nvmlInit()";
    case 2: return "A supplied argument is invalid";
    case 3: return "The requested operation is not available on target device";
    case 4: return "The current user does not have permission for operation";
    case 6: return "A query to find an object was unsuccessful";
    case 9: return "NVIDIA driver is not loaded";
    case 10: return "User provided timeout passed";
    case 15: return "The GPU has fallen off the bus or has otherwise become inaccessible";
    case 16: return "The GPU requires a reset before it can be used again";
    case 19: return "An operation cannot be performed because the GPU is currently in use";
    case 20: return "Insufficient memory";
    case 23: return "Ran out of critical resources, other than memory";
    case 27: return "The system is not ready for the request";
    default: return "An internal driver error occurred";
  }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
  return ask_text("nvmlSystemGetDriverVersion", -1, version, length);
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  return ask_text("nvmlSystemGetNVMLVersion", -1, version, length);
}
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { return ask_number("nvmlDeviceGetCount", -1, count); }
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  unsigned count = 0;
  nvmlReturn_t result = ask_number("nvmlDeviceGetHandleByIndex", (int)index, &count);
  if (result == NVML_SUCCESS && index >= count) result = NVML_ERROR_INVALID_ARGUMENT;
  *device = (nvmlDevice_t)(uintptr_t)(index + 1);
  return result;
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
  return ask_text("nvmlDeviceGetName", (int)index_of(device), name, length);
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
  return ask_text("nvmlDeviceGetUUID", (int)index_of(device), uuid, length);
}
EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length) {
  return ask_text("nvmlDeviceGetVbiosVersion", (int)index_of(device), version, length);
}
EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned *id) {
  return ask_number("nvmlDeviceGetBoardId", (int)index_of(device), id);
}
EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
  return ask_number("nvmlDeviceGetArchitecture", (int)index_of(device), architecture);
}

// environment, ccFeature, devToolsMode
EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(unsigned state[3]) {
  return ask("nvmlSystemGetConfComputeState", -1, NULL, state, 12, NULL);
}
// version (the caller's), environment, ccFeature, devToolsMode, multiGpuMode
EXPORT nvmlReturn_t nvmlSystemGetConfComputeSettings(unsigned settings[5]) {
  return ask("nvmlSystemGetConfComputeSettings", -1, NULL, settings + 1, 16, NULL);
}
// cpuCaps, gpusCaps
EXPORT nvmlReturn_t nvmlSystemGetConfComputeCapabilities(unsigned capabilities[2]) {
  return ask("nvmlSystemGetConfComputeCapabilities", -1, NULL, capabilities, 8, NULL);
}
EXPORT nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned *ready) {
  return ask_number("nvmlSystemGetConfComputeGpusReadyState", -1, ready);
}

struct certificate {
  unsigned certChainSize, attestationCertChainSize;
  unsigned char certChain[0x1000], attestationCertChain[0x1400];
};
EXPORT nvmlReturn_t nvmlDeviceGetConfComputeGpuCertificate(nvmlDevice_t device, struct certificate *out) {
  out->certChainSize = 0;
  return ask("nvmlDeviceGetConfComputeGpuCertificate", (int)index_of(device), NULL, out->attestationCertChain,
             sizeof out->attestationCertChain, &out->attestationCertChainSize);
}

struct report {
  unsigned isCecAttestationReportPresent, attestationReportSize, cecAttestationReportSize;
  unsigned char nonce[0x20], attestationReport[0x2000], cecAttestationReport[0x1000];
};
EXPORT nvmlReturn_t nvmlDeviceGetConfComputeGpuAttestationReport(nvmlDevice_t device, struct report *out) {
  out->isCecAttestationReportPresent = 0;
  out->cecAttestationReportSize = 0;
  return ask("nvmlDeviceGetConfComputeGpuAttestationReport", (int)index_of(device), out->nonce, out->attestationReport,
             sizeof out->attestationReport, &out->attestationReportSize);
}
