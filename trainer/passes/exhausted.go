package passes

import (
	"fmt"
	"slices"
	"strings"
)

// exhaustions are the texts of PJRT's plugins, for a compilation and a call, when a device has
// no memory left: the name of the error, its number, and texts without either.
var exhaustions = []string{"RESOURCE_EXHAUSTED", "PJRT ERROR (CODE=8)", "OUT OF MEMORY ALLOCATING", "OUT OF MEMORY WHILE TRYING TO ALLOCATE"}

// exhausted turns the error of a device without memory into ErrTooLarge: another attempt would
// fail, too. It returns other errors unchanged.
func exhausted(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToUpper(err.Error())
	if !slices.ContainsFunc(exhaustions, func(e string) bool { return strings.Contains(text, e) }) {
		return err
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%w of the device: lower rl.microbatch_tokens, or set model.remat or rl.loss.max_logits, or take more devices for the model axis; temper plan says what fits (%s)",
		ErrTooLarge, line)
}
