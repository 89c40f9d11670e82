// Goroutines that allocate while the garbage collector and its signals run. Prints a checksum.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

func work(seed uint64, rounds int) uint64 {
	sum := seed
	var kept [][]byte
	for i := 0; i < rounds; i++ {
		block := make([]byte, 1000+int(sum%200000))
		for j := range block {
			if block[j] != 0 {
				fmt.Println("WRONG: memory that is not zero")
				os.Exit(9)
			}
			block[j] = byte(sum >> 7)
			sum = sum*6364136223846793005 + 1442695040888963407
		}
		kept = append(kept, block)
		if len(kept) > 40 {
			for _, old := range kept[:20] {
				sum += uint64(old[len(old)/2])
			}
			kept = kept[20:]
		}
	}
	return sum
}

func main() {
	runtime.GOMAXPROCS(4)
	sums := make([]uint64, 12)
	var all sync.WaitGroup
	for i := range sums {
		all.Add(1)
		go func() {
			defer all.Done()
			sums[i] = work(uint64(i), 200)
		}()
	}
	all.Wait()
	debug.FreeOSMemory()
	var total uint64
	for _, sum := range sums {
		total ^= sum
	}
	fmt.Printf("goroutines %x\n", total+work(99, 200))
}
