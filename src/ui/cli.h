#pragma once

namespace stitch::ui {

// The whole command line. Exit codes: 0 done (and, for run and verify, valid and correct); 1 the program is not correct or not valid;
// 2 bad input or usage; 3 unsupported input; 4 something is missing on this machine; 5 internal error.
int main_entry(int argc, char** argv);

}  // namespace stitch::ui
