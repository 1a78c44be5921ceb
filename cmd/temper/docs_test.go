package main

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// aCommand finds the command lines of a line of code: what follows a prompt, a pipe or
// nothing.
var aCommand = regexp.MustCompile(`(?:^|[;&|(]|\$ |\$\()\s*(?:\./)?(?:bin/)?(temper [a-z][^|;&)#]*)`)

// TestDocumentedCommandsAreThere: every command line in the code blocks of the documents
// names a command and flags that there are.
func TestDocumentedCommandsAreThere(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		for _, code := range codeOf(t, file) {
			m := aCommand.FindStringSubmatch(code)
			if m == nil || strings.HasPrefix(m[1], "temper "+instruments+" ") {
				continue
			}
			lines++
			if problem := checkLine(m[1]); problem != "" {
				t.Errorf("%s: %s: %s", filepath.Base(file), m[1], problem)
			}
		}
	}
	if lines < 50 {
		t.Errorf("only %d command lines were found", lines)
	}
}

// codeOf returns the lines of a document that are in a code block, fenced or indented, with
// continued lines joined.
func codeOf(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []string
	fenced, joined := false, ""
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := scanner.Text()
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			continue
		}
		if part, more := strings.CutSuffix(line, "\\"); more {
			joined += part
			continue
		}
		out, joined = append(out, strings.TrimSpace(joined+line)), ""
	}
	return out
}
