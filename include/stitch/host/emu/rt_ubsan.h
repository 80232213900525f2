#pragma once
// Handlers for the UndefinedBehaviorSanitizer checks that the address flavour turns on. Our own, rather than libubsan's,
// because these know which CUDA thread is running. The data records are laid out by the compiler: a source location
// {file, line, column} first. Part of emu_runtime.cpp.

#include "rt_report.h"

#if defined(__SANITIZE_ADDRESS__)

namespace stitch_emu {
struct UbsanLocation {
  const char* file;
  uint32_t line, column;
};
struct UbsanType {
  uint16_t kind, info;
  char name[1];
};
struct UbsanMismatch {
  UbsanLocation at;
  UbsanType* type;
  unsigned char log_alignment, access;
};
struct UbsanBounds {
  UbsanLocation at;
  UbsanType *array, *index;
};
[[noreturn]] inline void ubsan_fault(const char* kind, const std::string& message, const UbsanLocation& at) {
  fatal(kind, message.c_str(), {at.file, static_cast<int>(at.line)});
}
}  // namespace stitch_emu

extern "C" void __ubsan_handle_type_mismatch_v1_abort(void* data, void* pointer) {
  const auto& d = *static_cast<stitch_emu::UbsanMismatch*>(data);
  const size_t align = size_t{1} << d.log_alignment;
  char text[256];
  if (!pointer)
    snprintf(text, sizeof text, "null pointer used as %s", d.type->name);
  else
    snprintf(text, sizeof text, "address %p is not aligned to %zu bytes as %s needs", pointer, align, d.type->name);
  stitch_emu::ubsan_fault(pointer ? "misaligned" : "null_pointer", text, d.at);
}
extern "C" void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
  const auto& d = *static_cast<stitch_emu::UbsanBounds*>(data);
  char text[256];
  snprintf(text, sizeof text, "index %ld is out of bounds of %s", static_cast<long>(reinterpret_cast<intptr_t>(index)),
           d.array->name);
  stitch_emu::ubsan_fault("out_of_bounds", text, d.at);
}
extern "C" void __ubsan_handle_divrem_overflow_abort(void* data, void*, void*) {
  stitch_emu::ubsan_fault("divide_by_zero", "integer division by zero or overflow",
                          *static_cast<stitch_emu::UbsanLocation*>(data));
}

namespace stitch_emu {
// The sanitizer's report has the stack; this adds which CUDA thread was running. The reader joins the two.
inline void on_sanitizer_report(const char*) {
  Report r;
  r.kind = "address_sanitizer";
  r.message = "memory error, see the sanitizer's report";
  add_thread(r);
  write_report(r);
}
__attribute__((constructor)) static void watch_sanitizer() { __asan_set_error_report_callback(&on_sanitizer_report); }
}  // namespace stitch_emu
#endif
