#include "loop/stamps.h"

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"

namespace stitch::loop {
namespace {

// "" if there is no such file.
std::string stamp(const fs::path& file) {
  std::error_code ec;
  const auto size = fs::file_size(file, ec);
  const auto changed = ec ? fs::file_time_type() : fs::last_write_time(file, ec);
  return ec ? "" : fmt::format("{} {}", size, changed.time_since_epoch().count());
}

void add(Json& stamps, const fs::path& file) {
  if (std::string s = stamp(file); !s.empty()) stamps[file.string()] = std::move(s);
}

}  // namespace

std::string stamps_of(const std::vector<fs::path>& outputs) {
  Json stamps = Json::object();
  for (const fs::path& p : outputs) {
    std::error_code ec;
    if (!fs::is_directory(p, ec)) {
      add(stamps, p);
      continue;
    }
    for (auto it = fs::recursive_directory_iterator(p, ec); !ec && it != fs::recursive_directory_iterator(); it.increment(ec))
      if (it->is_regular_file(ec)) add(stamps, it->path());
  }
  return dump(stamps, -1);
}

std::string change_since(const std::string& text) {
  const auto stamps = parse_json(text.empty() ? "{}" : text, "the run store");
  if (!stamps || !stamps->is_object() || stamps->empty()) return "there is no record of its files";
  for (const auto& [file, before] : stamps->items()) {
    const std::string now = stamp(file);
    const std::string name = fs::path(file).filename().string();
    if (now.empty()) return name + " is missing";
    if (before != Json(now)) return name + " was changed";
  }
  return "";
}

}  // namespace stitch::loop
