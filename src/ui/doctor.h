#pragma once
// `stitchcuda doctor`: what is on this machine, and what is lost without each part.

#include <string>
#include <vector>

#include "base/json.h"

namespace stitch::ui {

struct Finding {
  std::string name;      // "nvcc"
  bool present = false;
  bool required = false; // the main job cannot run without it
  std::string detail;    // version and place, or why it is not usable
  std::string lost;      // what is lost without
};

std::vector<Finding> examine_machine();
Json to_json(const std::vector<Finding>&);
void print_findings(const std::vector<Finding>&);

}  // namespace stitch::ui
