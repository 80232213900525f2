#pragma once
// Names and sentences of others, written into generated C++ and Python. A bundle's names may hold anything but control characters (ir/names.h),
// a planner's sentences anything at all.

#include <string>
#include <string_view>

namespace stitch::code {

// For a // or /* */ comment: one line, no end of comment, no backslash (it would splice the next line), no trigraph, `longest` bytes at most.
std::string comment_text(std::string_view, size_t longest = 200);
// "..." with its quotes, any bytes inside; plain ASCII.
std::string c_string(std::string_view);
// "..." with its quotes, for Python. Invalid UTF-8 is replaced.
std::string python_string(std::string_view);

}  // namespace stitch::code
