#pragma once
// Expected failures are values: a function that can fail because of its input, the machine or a candidate returns
// Result<T>. Exceptions are left to programming errors.

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace stitch {

// What kind of thing went wrong; decides the exit code of the command line and which agent is asked to repair it.
enum class ErrorKind {
  bad_input,    // the user's file, flag, bundle or graph is wrong
  unsupported,  // valid input that this program cannot handle
  environment,  // something is missing or full on this machine: nvcc, torch, disk, GPU
  candidate,    // generated or submitted code does not compile, crashes, hangs or lies
  internal,     // an invariant of our own broke; please report
};

// `message` is one sentence that says what is wrong and what to do. `detail` is optional evidence for a log or a
// report (a compiler's output, a Python traceback) and is never printed before the message.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;
  std::string detail;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return tl::make_unexpected(Error{kind, fmt::format(format, std::forward<Args>(args)...), {}});
}

}  // namespace stitch

#define STITCH_CONCAT_(a, b) a##b
#define STITCH_CONCAT(a, b) STITCH_CONCAT_(a, b)

// STITCH_TRY(auto x, f()): declares x from the value of f(), or returns f()'s error from the calling function.
#define STITCH_TRY(declaration, expression)                             \
  auto STITCH_CONCAT(stitch_try_, __LINE__) = (expression);             \
  if (!STITCH_CONCAT(stitch_try_, __LINE__))                            \
    return tl::make_unexpected(std::move(STITCH_CONCAT(stitch_try_, __LINE__)).error()); \
  declaration = std::move(*STITCH_CONCAT(stitch_try_, __LINE__))

// STITCH_CHECK_OK(f()): returns f()'s error from the calling function, if any.
#define STITCH_CHECK_OK(expression)                                                        \
  do {                                                                                     \
    if (auto stitch_status = (expression); !stitch_status)                                 \
      return tl::make_unexpected(std::move(stitch_status).error());                        \
  } while (0)
