# What a guest of `compare --kernel --sysroot` says, whom the machine outside boots, is set beside the size of base pages here.
run page looks page
