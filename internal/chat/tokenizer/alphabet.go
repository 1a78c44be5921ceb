package tokenizer

import "fmt"

// byteAlphabet returns the printable rune that stands for each byte in
// byte-level BPE files: the visible Latin-1 characters stand for themselves,
// the others are shifted to U+0100 and above, in order.
func byteAlphabet() [numBytes]rune {
	var alphabet [numBytes]rune
	next := rune(0x100)
	for b := range numBytes {
		visible := (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae
		if visible {
			alphabet[b] = rune(b)
			continue
		}
		alphabet[b] = next
		next++
	}
	return alphabet
}

// runeBytes is the inverse of byteAlphabet.
func runeBytes() map[rune]byte {
	m := map[rune]byte{}
	for b, r := range byteAlphabet() {
		m[r] = byte(b)
	}
	return m
}

func decodeName(runes map[rune]byte, name string) ([]byte, error) {
	if name == "" {
		return nil, fmt.Errorf("vocabulary has an empty token")
	}
	var content []byte
	for _, r := range name {
		b, ok := runes[r]
		if !ok {
			return nil, fmt.Errorf("token %q is not spelled in the byte-level alphabet", name)
		}
		content = append(content, b)
	}
	return content, nil
}
