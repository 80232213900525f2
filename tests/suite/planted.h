#pragma once
// A small KernelBench of our own, with the ways in which a problem file can be bad.
#include <map>
#include <string>

#include "base/files.h"

namespace stitch::suite {

inline std::string model(const std::string& forward, const std::string& inputs = "[torch.rand(4, 8)]", const std::string& before = "") {
  return "import torch\n" + before + "\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        " + forward + "\n\ndef get_inputs():\n    return " + inputs +
         "\n\ndef get_init_inputs():\n    return []\n";
}

// Writes ROOT/KernelBench/level1/NAME.py for each.
inline Status plant(const fs::path& root, const std::map<std::string, std::string>& problems) {
  for (const auto& [name, text] : problems) STITCH_CHECK_OK(write_file(root / "KernelBench/level1" / (name + ".py"), text));
  return {};
}

}  // namespace stitch::suite
