# The offered policies match the kernel's settings.
run kernel uname -r
run version pagelab --version
run page looks page
run folios sh -c "cd $thp && ls -d hugepages-*/enabled"
run pmd cat $thp/hpage_pmd_size
run pools ls /sys/kernel/mm/hugepages
run policies pagelab list policies --json
run doctor pagelab doctor
