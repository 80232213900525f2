#include "suite/identity.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/parallel.h"
#include "base/process.h"
#include "suite/gpus.h"

namespace stitch::suite {
namespace {

Status add_folder(Sha256& h, const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(folder, ec); it != fs::recursive_directory_iterator(); it.increment(ec)) {
    if (it->path().filename() == "__pycache__") it.disable_recursion_pending();
    else if (it->is_regular_file(ec)) files.push_back(it->path());
    if (ec) break;
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& f : files) {
    STITCH_TRY(const std::string text, read_file(f));
    h.field(f.lexically_relative(folder).string()).field(text);
  }
  return {};
}

std::string git(const std::vector<std::string>& arguments) {
  ProcessSpec spec;
  spec.argv = {"git", "-C", source_root().string()};
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.timeout = std::chrono::seconds(30);
  const auto r = run_process(spec);
  return r && r->ok() ? r->out.substr(0, r->out.find_last_not_of(" \n") + 1) : "";
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
  return "unknown";
}

}  // namespace

Result<Identity> product_identity() {
  Identity id;
  Sha256 capture, product;
  STITCH_CHECK_OK(add_folder(capture, source_root() / "python/stitchcuda"));
  id.capture = capture.hex();
  STITCH_TRY(const std::string program, sha256_of_file("/proc/self/exe"));
  product.field(id.capture).field(program);
  for (const char* folder : {"include/stitch", "kernels"}) STITCH_CHECK_OK(add_folder(product, source_root() / folder));
  id.product = product.hex();
  return id;
}

std::string commit_of_source() {
  const std::string commit = git({"rev-parse", "HEAD"});
  if (commit.empty()) {
    const char* told = std::getenv("STITCHCUDA_COMMIT");
    return told && *told ? told : "unknown";
  }
  return git({"status", "--porcelain", "--untracked-files=no"}).empty() ? commit : commit + "-dirty";
}

Json describe_machine() {
  struct sysinfo info {};
  sysinfo(&info);
  Json names = Json::array();
  for (const Gpu& g : find_gpus()) names.push_back(g.name);
  return {{"cpu", cpu_name()}, {"cores", hardware_threads()}, {"memory_bytes", uint64_t{info.totalram} * info.mem_unit}, {"gpus", names}};
}

}  // namespace stitch::suite
