package jail

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forkLoop is the code that the zygote runs; it is never called in this process.
func forkLoop()

// forkLoopAddress returns where forkLoop begins.
func forkLoopAddress() unsafe.Pointer

// forkLoopEnd follows the last instruction of forkLoop.
const forkLoopEnd = 0x6c6f6f70656e6421

// forkLoopLimit is more than the loop will ever need.
const forkLoopLimit = 4096

// machineCode returns the instructions of the fork loop, which run at any address.
func machineCode() ([]byte, error) {
	code := unsafe.Slice((*byte)(forkLoopAddress()), forkLoopLimit)
	end := bytes.Index(code, binary.LittleEndian.AppendUint64(nil, forkLoopEnd))
	if end < 0 {
		return nil, errors.New("the fork loop has no end mark")
	}
	return bytes.Clone(code[:end]), nil
}

// sysDup2 does not exist on newer architectures.
const sysDup2 = unix.SYS_DUP2
