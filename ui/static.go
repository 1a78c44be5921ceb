package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// dist is what tools/ui has built of src and vendor.
//
//go:embed dist
var dist embed.FS

//go:generate go test -run TestGenerated -update .

// pageHandler serves the embedded files, and the page itself under every other path:
// its routes are the page's own.
type pageHandler struct{ files map[string]pageFile }

type pageFile struct {
	kind         string
	plain, small []byte // small is the gzip of it
	tag          string
}

func newPage() (*pageHandler, error) {
	p := &pageHandler{files: map[string]pageFile{}}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		if _, err := z.Write(data); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		p.files["/"+strings.TrimPrefix(name, "dist/")] = pageFile{
			kind: mime.TypeByExtension(path.Ext(name)), plain: data, small: small.Bytes(), tag: `"` + hex.EncodeToString(sum[:8]) + `"`,
		}
		return nil
	})
	if err == nil {
		if _, ok := p.files[pageName]; !ok {
			err = fmt.Errorf("dashboard: dist%s is not built in", pageName)
		}
	}
	return p, err
}

const pageName = "/index.html"

func (p *pageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[r.URL.Path]
	switch {
	case ok:
	case strings.HasPrefix(r.URL.Path, "/api/"):
		fail(w, http.StatusNotFound, "no such path: /api describes all")
		return
	case path.Ext(r.URL.Path) == ".js", path.Ext(r.URL.Path) == ".css", path.Ext(r.URL.Path) == ".map":
		fail(w, http.StatusNotFound, "no such file")
		return
	default:
		f = p.files[pageName]
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	data := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = f.small
	}
	_, _ = w.Write(data) // the client has gone when this fails
}
