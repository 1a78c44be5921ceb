package importer

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"temper/internal/chat"
	"temper/internal/dataset/layout"
)

// unknown is the licence of rows of which nothing is known.
const unknown = "unknown"

// maxCard bounds what is read of a data set's card.
const maxCard = 64 << 10

// fillOrigin gives a row its source and licence: its own, else those of the command, else
// those of the file.
func (im *imported) fillOrigin(file *File) {
	item := &im.item
	if item.Source == "" || im.opts.Source != "" {
		item.Source = im.opts.Source
	}
	if item.Source == "" {
		item.Source = filepath.Base(file.Path)
	}
	if item.License == "" {
		item.License = im.opts.License
	}
	if item.License == "" {
		item.License = file.License
	}
}

// fileLicense returns the license of the data set's card: the head of README.md beside the
// file or in a folder above it, as sets on Hugging Face have it.
func fileLicense(path string) string {
	dir := filepath.Dir(path)
	for range 3 {
		if license := cardLicense(filepath.Join(dir, "README.md")); license != "" {
			return license
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return unknown
}

func cardLicense(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // a set without a card
	}
	defer f.Close() //nolint:errcheck // it was only read
	card := make([]byte, maxCard)
	n, _ := f.Read(card)
	head, ok := bytes.CutPrefix(card[:n], []byte("---\n"))
	if !ok {
		return ""
	}
	head, _, _ = bytes.Cut(head, []byte("\n---"))
	for _, line := range strings.Split(string(head), "\n") {
		if license, ok := strings.CutPrefix(line, "license:"); ok {
			return strings.Trim(strings.TrimSpace(license), `"'`)
		}
	}
	return ""
}

// filesIn lists the files of rows below a folder, by name.
func filesIn(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != dir {
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".parquet", ".jsonl", ".ndjson", ".json":
			if d.Type().IsRegular() && d.Name() != "dataset_infos.json" && d.Name() != "dataset_info.json" && d.Name() != "state.json" {
				out = append(out, path)
			}
		}
		return nil
	})
	return out, err
}

// joined lists names within bounds.
func joined(names []string) string {
	const most = 20
	more := ""
	if len(names) > most {
		names, more = names[:most], ", ..."
	}
	text := strings.Join(names, ", ") + more
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "..."
	}
	return text
}

// PromptOf returns the prompt of a problem, or all messages of users of a dialogue.
func PromptOf(item *layout.Item) string {
	if item.Prompt != "" || len(item.Dialogue.Messages) == 0 {
		return item.Prompt
	}
	var b strings.Builder
	for _, m := range item.Dialogue.Messages {
		if m.Role != chat.RoleUser {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(m.Content)
	}
	return b.String()
}
