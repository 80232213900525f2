#include <fmt/format.h>

#include "base/files.h"
#include "base/terminal.h"
#include "build/compiler.h"
#include "build/toolkit.h"
#include "loop/program.h"
#include "ui/commands.h"

namespace stitch::ui {

int build_command(const BuildArguments& a) {
  const bool cuda = a.target == "cuda" || (a.target == "auto" && !build::find_cuda_toolkit().nvcc.empty());
  const auto r = loop::build_folder(a.folder, cuda);
  if (!r) return report_error(r.error());
  if (!r->ok) {
    for (const build::StepOutcome& step : r->steps)
      if (!step.ok) fmt::print(stderr, "{}", printable(step.log));
    return print_error(fmt::format("The program does not compile: {}", r->summary)), 1;
  }
  fmt::print("{}: {}\n", printable((fs::path(a.folder) / (cuda ? "program.so" : "program_host.so")).string()),
             r->cached ? "from the cache" : fmt::format("built in {:.1f} s", r->seconds));
  return 0;
}

}  // namespace stitch::ui
