// Two functions touch memory, one of them in a goroutine.
package main

import "fmt"

//go:noinline
func planted64M() []byte {
	memory := make([]byte, 64<<20)
	for at := 0; at < len(memory); at += 512 {
		memory[at] = 1
	}
	return memory
}

//go:noinline
func inGoroutine32M(done chan []byte) {
	memory := make([]byte, 32<<20)
	for at := 0; at < len(memory); at += 512 {
		memory[at] = 2
	}
	done <- memory
}

func main() {
	done := make(chan []byte)
	go inGoroutine32M(done)
	other := <-done
	memory := planted64M()
	fmt.Println(memory[512], other[512])
}
