#include "run/code_snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/hash.h"

namespace stitch::run {
namespace {

// CUDA's driver patches nothing in its own text, but it is large; hashing 100 MB once or twice is cheap enough.
std::optional<std::string> hash_of(int memory, uint64_t begin, uint64_t end) {
  Sha256 sha;
  std::string buffer(1u << 20, '\0');
  for (uint64_t at = begin; at < end;) {
    const ssize_t n = pread(memory, buffer.data(), std::min<uint64_t>(buffer.size(), end - at), static_cast<off_t>(at));
    if (n <= 0) return std::nullopt;
    sha.raw({buffer.data(), static_cast<size_t>(n)});
    at += static_cast<uint64_t>(n);
  }
  return sha.hex();
}

std::vector<CodeSegment> segments_of(int pid) {
  std::vector<CodeSegment> out;
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, offset, device, inode;
    CodeSegment s;
    fields >> range >> s.permissions >> offset >> device >> inode;
    std::getline(fields >> std::ws, s.file);
    const auto dash = range.find('-');
    s.begin = std::stoull(range.substr(0, dash), nullptr, 16);
    s.end = std::stoull(range.substr(dash + 1), nullptr, 16);
    // Private and not writable: code and tables. Device memory and shared mappings change by themselves.
    const bool code = s.permissions.starts_with("r-") && s.permissions.ends_with("p");
    if (code && s.file.starts_with("/") && !s.file.starts_with("/dev/") && !s.file.starts_with("/memfd:")) out.push_back(std::move(s));
  }
  return out;
}

int open_memory(int pid) { return open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC); }

}  // namespace

CodeState read_code_state(int pid) {
  CodeState state;
  const int memory = open_memory(pid);
  if (memory < 0) return state;
  for (auto& segment : segments_of(pid)) {
    auto hash = hash_of(memory, segment.begin, segment.end);
    if (!hash) continue;
    segment.hash = *hash;
    state.segments.push_back(std::move(segment));
  }
  close(memory);
  return state;
}

std::optional<std::string> compare_code_state(const CodeState& before, int pid) {
  const int memory = open_memory(pid);
  if (memory < 0) return std::nullopt;
  const auto now = segments_of(pid);
  std::optional<std::string> verdict = "";
  for (const auto& segment : before.segments) {
    const auto name = segment.file.substr(segment.file.rfind('/') + 1);
    const auto same = std::find_if(now.begin(), now.end(), [&](const CodeSegment& s) {
      return s.begin <= segment.begin && s.end >= segment.end && s.file == segment.file && s.permissions == segment.permissions;
    });
    if (same == now.end()) {
      verdict = fmt::format("Memory of {} was remapped or made writable.", name);
      break;
    }
    const auto hash = hash_of(memory, segment.begin, segment.end);
    if (!hash) {
      verdict = std::nullopt;
      break;
    }
    if (*hash != segment.hash) {
      verdict = fmt::format("Code or tables of {} were changed in memory.", name);
      break;
    }
  }
  close(memory);
  return verdict;
}

}  // namespace stitch::run
