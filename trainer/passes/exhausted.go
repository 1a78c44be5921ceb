package passes

import (
	"fmt"
	"slices"
	"strings"
)

// exhaustions are what PJRT's plugins say, of a compilation and of a call, where a device has
// no more memory: the name of the error, its number, and texts without either.
var exhaustions = []string{"RESOURCE_EXHAUSTED", "PJRT ERROR (CODE=8)", "OUT OF MEMORY ALLOCATING", "OUT OF MEMORY WHILE TRYING TO ALLOCATE"}

// exhausted gives the error of a device without memory the kind of a step that is too
// large: another attempt would fail as this one did. Other errors stay what they are.
func exhausted(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToUpper(err.Error())
	if !slices.ContainsFunc(exhaustions, func(e string) bool { return strings.Contains(text, e) }) {
		return err
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%w of the device: lower rl.microbatch_tokens, or set model.remat or rl.loss.max_logits, or take more devices for the model axis; temper trainer plan says what fits (%s)",
		ErrTooLarge, line)
}
