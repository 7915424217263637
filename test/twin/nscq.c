// A stand-in for NVIDIA's libnvidia-nscq.so.2, for tests: it asks the twin's server (nvml-server.ts) over a Unix socket.
//
// NSCQ answers by callbacks, called before nscq_session_path_observe returns: the switch, a return code, the value, by value,
// and what the caller gave. Types and paths are those of the headers in NVIDIA's own Python package (API 2.0.0).
#include "ask.h"

#include <stdlib.h>

#define NSCQ_RC_ERROR_NOT_IMPLEMENTED (-1)
#define NSCQ_RC_ERROR_INVALID_UUID (-2)
#define NSCQ_RC_ERROR_OVERFLOW (-4)
#define NSCQ_RC_ERROR_UNEXPECTED_VALUE (-5)
#define NSCQ_RC_ERROR_DRV (-7)
#define NSCQ_RC_ERROR_UNSPECIFIED (-128)

typedef int8_t nscq_rc_t;
typedef void (*nscq_fn_t)(void);
typedef struct { uint8_t bytes[16]; } nscq_uuid_t;
typedef struct { char data[64]; } nscq_label_t;
typedef struct { uint32_t report_size; uint8_t report[0x2000]; } nscq_attestation_report_t;
typedef struct { uint8_t cert_chain[0x1400]; uint32_t cert_chain_size; } nscq_attestation_certificate_t;
struct session { unsigned char nonce[32]; };
typedef struct { nscq_rc_t rc; struct session *session; } nscq_session_result_t;

EXPORT const uint32_t nscq_api_version = 2u << 24;

static nscq_rc_t ask(const char *function, int device, const unsigned char *nonce, void *out, unsigned capacity,
                     unsigned *size) {
  int result = ask_twin(function, device, nonce, out, capacity, size);
  switch (result) {
    case TWIN_AWAY: return NSCQ_RC_ERROR_DRV;
    case TWIN_BROKEN: return NSCQ_RC_ERROR_UNSPECIFIED;
    case TWIN_TOO_LONG: return NSCQ_RC_ERROR_OVERFLOW;
    default: return (nscq_rc_t)result;
  }
}

// The switch's index stands in the last byte.
static nscq_uuid_t uuid_of(int index) {
  nscq_uuid_t uuid = {{0}};
  uuid.bytes[15] = (uint8_t)index;
  return uuid;
}

static void write_label(const nscq_uuid_t *uuid, char *label) {
  int at = sprintf(label, "SWX-");
  for (int i = 0; i < 16; i++) at += sprintf(label + at, "%02X", uuid->bytes[i]);
}

EXPORT nscq_rc_t nscq_uuid_to_label(const nscq_uuid_t *uuid, nscq_label_t *label, uint32_t flags) {
  (void)flags;
  memset(label, 0, sizeof *label);
  write_label(uuid, label->data);
  return 0;
}

EXPORT nscq_session_result_t nscq_session_create(uint32_t flags) {
  nscq_session_result_t result = {.rc = ask("nscq_session_create", (int)flags, NULL, NULL, 0, NULL)};
  if (result.rc >= 0) result.session = calloc(1, sizeof *result.session);
  return result;
}
EXPORT void nscq_session_destroy(struct session *session) { free(session); }

EXPORT nscq_rc_t nscq_session_set_input(struct session *session, uint32_t flags, void *input, uint32_t size) {
  (void)flags;
  if (size != sizeof session->nonce) return NSCQ_RC_ERROR_UNEXPECTED_VALUE;
  memcpy(session->nonce, input, size);
  return 0;
}

typedef void (*on_uuid_t)(const nscq_uuid_t *, nscq_rc_t, const nscq_uuid_t *, void *);
typedef void (*on_byte_t)(const nscq_uuid_t *, nscq_rc_t, int8_t, void *);
typedef void (*on_report_t)(const nscq_uuid_t *, nscq_rc_t, nscq_attestation_report_t, void *);
typedef void (*on_certificate_t)(const nscq_uuid_t *, nscq_rc_t, nscq_attestation_certificate_t, void *);

static void observe_one(struct session *session, int index, const char *what, nscq_fn_t callback, void *user) {
  nscq_uuid_t uuid = uuid_of(index);
  if (strcmp(what, "uuid") == 0) {
    ((on_uuid_t)callback)(&uuid, 0, &uuid, user);
  } else if (strcmp(what, "id/arch") == 0 || strcmp(what, "config/pcie_mode") == 0) {
    int32_t value = 0;
    nscq_rc_t rc = ask(what, index, NULL, &value, sizeof value, NULL);
    ((on_byte_t)callback)(&uuid, rc, (int8_t)value, user);
  } else if (strcmp(what, "config/certificate") == 0) {
    nscq_attestation_certificate_t certificate = {.cert_chain_size = 0};
    nscq_rc_t rc = ask(what, index, NULL, certificate.cert_chain, sizeof certificate.cert_chain, &certificate.cert_chain_size);
    ((on_certificate_t)callback)(&uuid, rc, certificate, user);
  } else {
    nscq_attestation_report_t report = {.report_size = 0};
    nscq_rc_t rc = ask(what, index, session->nonce, report.report, sizeof report.report, &report.report_size);
    ((on_report_t)callback)(&uuid, rc, report, user);
  }
}

static const char *const KNOWN[] = {"id/arch", "config/pcie_mode", "config/certificate", "config/attestation_report"};

EXPORT nscq_rc_t nscq_session_path_observe(struct session *session, const char *path, nscq_fn_t callback, void *user,
                                           uint32_t flags) {
  (void)flags;
  int32_t count = 0;
  nscq_rc_t rc = ask("switches", -1, NULL, &count, sizeof count, NULL);
  if (rc < 0) return rc;
  if (strcmp(path, "/drv/nvswitch/{device}/uuid") == 0) {
    for (int i = 0; i < count; i++) observe_one(session, i, "uuid", callback, user);
    return 0;
  }
  const char *slash = path[0] == '/' ? strchr(path + 1, '/') : NULL;
  if (slash == NULL) return NSCQ_RC_ERROR_NOT_IMPLEMENTED;
  size_t known = 0;
  while (known < sizeof KNOWN / sizeof *KNOWN && strcmp(slash + 1, KNOWN[known]) != 0) known++;
  if (known == sizeof KNOWN / sizeof *KNOWN) return NSCQ_RC_ERROR_NOT_IMPLEMENTED;
  size_t length = (size_t)(slash - path - 1);
  int every = length == strlen("{nvswitch}") && memcmp(path + 1, "{nvswitch}", length) == 0;
  int found = 0;
  for (int i = 0; i < count; i++) {
    nscq_uuid_t uuid = uuid_of(i);
    char label[64];
    write_label(&uuid, label);
    if (!every && (strlen(label) != length || memcmp(path + 1, label, length) != 0)) continue;
    observe_one(session, i, KNOWN[known], callback, user);
    found++;
  }
  return every || found > 0 ? 0 : NSCQ_RC_ERROR_INVALID_UUID;
}
