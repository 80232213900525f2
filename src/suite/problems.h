#pragma once
// The problem files of a KernelBench checkout.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace stitch::suite {

struct Problem {
  int level = 0;
  int id = 0;
  std::string name;            // "ReLU" of level1/19_ReLU.py
  std::filesystem::path file;  // absolute
  // "level1/019_ReLU": the problem's folder below the suite's output folder.
  std::string folder() const;
};

// "1,5-9" -> whether 7 is among them. "" selects everything.
class Selection {
 public:
  static Result<Selection> parse(std::string_view text);
  bool has(int id) const;
  std::vector<std::pair<int, int>> ranges;  // inclusive
};

// Folder with level1/, level2/, ...: `root` itself, or KernelBench/ below it.
Result<std::filesystem::path> find_levels(const std::filesystem::path& root);

// Files N_NAME.py of a level, by number. Error: no such level, or nothing selected.
Result<std::vector<Problem>> find_problems(const std::filesystem::path& root, int level, const Selection&);

}  // namespace stitch::suite
