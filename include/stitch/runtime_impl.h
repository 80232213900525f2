#pragma once
// Definitions behind stitch/runtime.h. Included by exactly one source of a program: program.cpp.

#include <cstdio>

#include "stitch/runtime.h"

namespace stitch {

Failure failure(const char* what, const char* reason) {
  thread_local char text[512];
  std::snprintf(text, sizeof text, "%s: %s", what, reason);
  return text;
}

}  // namespace stitch
