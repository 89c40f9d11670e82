# Prints the base page size, with which the host compares the result of the guest that it boots with `compare --kernel --sysroot`.
run page looks page
