#include "ui/cli.h"

int main(int argc, char** argv) { return stitch::ui::main_entry(argc, argv); }
