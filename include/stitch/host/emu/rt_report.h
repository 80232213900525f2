#pragma once
// Fault reports: one JSON object per line appended to $STITCH_HOST_REPORT, and one sentence on stderr.
// Part of emu_runtime.cpp.

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <mutex>
#include <string>

#include "core.h"

namespace stitch_emu {

inline constexpr int kFaultExit = 86;  // exit status of a process that found a fault in the candidate

struct Report {
  const char* kind = "";
  std::string message;
  Site site{nullptr, 0}, other_site{nullptr, 0};
  const char* kernel = nullptr;
  bool has_thread = false, has_other_thread = false;
  uint3 block{}, thread{}, other_thread{};
  uint32_t pc = 0, other_pc = 0;  // code offsets in `module`, turned into lines by whoever reads the report
  std::string module;
};

inline void append_json_string(std::string& out, const char* key, const char* value) {
  out += ",\"";
  out += key;
  out += "\":\"";
  for (const char* p = value; *p; ++p) {
    const unsigned char c = static_cast<unsigned char>(*p);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *p;
    } else if (c < 0x20) {
      char text[8];
      snprintf(text, sizeof text, "\\u%04x", c);
      out += text;
    } else {
      out += *p;
    }
  }
  out += '"';
}
inline void append_json_index(std::string& out, const char* key, uint3 v) {
  char text[80];
  snprintf(text, sizeof text, ",\"%s\":[%u,%u,%u]", key, v.x, v.y, v.z);
  out += text;
}
inline void append_json_number(std::string& out, const char* key, unsigned long v) {
  char text[64];
  snprintf(text, sizeof text, ",\"%s\":%lu", key, v);
  out += text;
}

inline std::string to_json(const Report& r) {
  std::string out = "{\"kind\":\"";
  out += r.kind;
  out += '"';
  append_json_string(out, "message", r.message.c_str());
  if (r.site.file) append_json_string(out, "file", r.site.file);
  if (r.site.file) append_json_number(out, "line", static_cast<unsigned long>(r.site.line));
  if (r.other_site.file) append_json_string(out, "other_file", r.other_site.file);
  if (r.other_site.file) append_json_number(out, "other_line", static_cast<unsigned long>(r.other_site.line));
  if (r.kernel) append_json_string(out, "kernel", r.kernel);
  if (r.has_thread) append_json_index(out, "block", r.block);
  if (r.has_thread) append_json_index(out, "thread", r.thread);
  if (r.has_other_thread) append_json_index(out, "other_thread", r.other_thread);
  if (r.pc) append_json_number(out, "pc", r.pc);
  if (r.other_pc) append_json_number(out, "other_pc", r.other_pc);
  if (!r.module.empty()) append_json_string(out, "module", r.module.c_str());
  return out + "}\n";
}

inline void write_report(const Report& r) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const std::string line = to_json(r);
  if (const char* path = getenv("STITCH_HOST_REPORT")) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      if (write(fd, line.data(), line.size()) < 0) perror("stitch host target: report");
      close(fd);
    }
  }
  char where[64] = "";
  if (r.has_thread)
    snprintf(where, sizeof where, " [block %u,%u,%u thread %u,%u,%u]", r.block.x, r.block.y, r.block.z, r.thread.x,
             r.thread.y, r.thread.z);
  fprintf(stderr, "stitch host target: %s: %s%s%s", r.kind, r.message.c_str(), where, r.site.file ? " at " : "\n");
  if (r.site.file) fprintf(stderr, "%s:%d\n", r.site.file, r.site.line);
}

[[noreturn]] inline void exit_faulty() {
  fflush(nullptr);
  _exit(kFaultExit);
}

}  // namespace stitch_emu
