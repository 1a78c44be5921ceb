package config

import "strings"

// maxWord bounds the length of words that are compared: longer ones are no typing errors.
const maxWord = 64

// Closest is the known word that a wrong one was probably meant to be, "" for none.
// It differs in at most two letters, and in less than half of the word.
func Closest(wrong string, known []string) string {
	best, fewest := "", 3
	if len(wrong) > maxWord {
		return ""
	}
	for _, word := range known {
		if d := Edits(strings.ToLower(wrong), word); d < fewest && d <= len(word)/2 {
			best, fewest = word, d
		}
	}
	return best
}

// Edits is the number of letters to insert, delete or replace between two words:
// Levenshtein's distance.
func Edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
