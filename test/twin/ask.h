// How the stand-ins for NVIDIA's libraries ask the twin's server (nvml-server.ts), over the Unix socket beside them.
//
// Each call is a connection of its own: a text line `function device nonce\n` goes out; a return code and a length (32 bits
// each, in the machine's order) and that many bytes come back.
#ifndef TWIN_ASK_H
#define TWIN_ASK_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
// No server, no answer, more than fits: none of them a code of NVIDIA's.
#define TWIN_AWAY (-1001)
#define TWIN_BROKEN (-1002)
#define TWIN_TOO_LONG (-1003)

static int receive(int fd, void *into, size_t size) {
  for (char *at = into; size > 0;) {
    ssize_t got = read(fd, at, size);
    if (got <= 0) return -1;
    at += got;
    size -= (size_t)got;
  }
  return 0;
}

static int connect_beside(void) {
  Dl_info self;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (dladdr((void *)connect_beside, &self) == 0) return -1;
  const char *slash = strrchr(self.dli_fname, '/');
  int folder = slash == NULL ? 0 : (int)(slash - self.dli_fname + 1);
  if (snprintf(address.sun_path, sizeof address.sun_path, "%.*stwin.sock", folder, self.dli_fname) >=
      (int)sizeof address.sun_path)
    return -1;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// The server's return code, or one of the above. Fills at most `capacity` bytes of `out`; `*size` becomes how many.
static int ask_twin(const char *function, int device, const unsigned char *nonce, void *out, unsigned capacity,
                    unsigned *size) {
  char line[192];
  int length = snprintf(line, sizeof line, "%s %d ", function, device);
  for (int i = 0; nonce != NULL && i < 32; i++) length += snprintf(line + length, sizeof line - length, "%02x", nonce[i]);
  line[length++] = '\n';

  int fd = connect_beside();
  if (fd < 0) return TWIN_AWAY;
  int32_t head[2];
  int result = TWIN_BROKEN;
  if (write(fd, line, (size_t)length) == length && receive(fd, head, sizeof head) == 0) {
    result = head[0];
    if (result == 0 && (uint32_t)head[1] > capacity) result = TWIN_TOO_LONG;
    if (result == 0 && receive(fd, out, (size_t)head[1]) != 0) result = TWIN_BROKEN;
    if (result == 0 && size != NULL) *size = (unsigned)head[1];
  }
  close(fd);
  return result;
}

#endif
