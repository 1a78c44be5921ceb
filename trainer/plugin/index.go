package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// pipPatience bounds how long pip may take to name its index.
const pipPatience = 20 * time.Second

// mostIndex bounds the page of one package in an index, in bytes.
const mostIndex = 64 << 20

// pipSettings are the settings of pip that say where packages come from.
type pipSettings struct {
	index   string
	extra   []string
	cert    string // file of certificates
	noIndex bool
}

// readPip reads pip's settings from its configuration files and the environment, which
// goes first.
func readPip() (pipSettings, error) {
	merged := map[string]string{}
	for _, file := range pipFiles() {
		values, err := readPipFile(file)
		if err != nil {
			return pipSettings{}, fmt.Errorf("settings of pip: %w", err)
		}
		for k, v := range values {
			merged[k] = v
		}
	}
	for key, env := range map[string]string{"index-url": "PIP_INDEX_URL", "extra-index-url": "PIP_EXTRA_INDEX_URL", "cert": "PIP_CERT", "no-index": "PIP_NO_INDEX"} {
		if v, ok := os.LookupEnv(env); ok && v != "" {
			merged[key] = v
		}
	}
	s := pipSettings{index: merged["index-url"], extra: strings.Fields(merged["extra-index-url"]), cert: merged["cert"]}
	switch strings.ToLower(merged["no-index"]) {
	case "1", "true", "yes", "on":
		s.noIndex = true
	}
	return s, nil
}

// pipFiles are pip's configuration files, those that go first at the end.
func pipFiles() []string {
	last, ok := os.LookupEnv("PIP_CONFIG_FILE")
	if ok && last == os.DevNull {
		return nil // this is how pip is told to read none
	}
	files := []string{"/etc/pip.conf"}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".pip", "pip.conf"))
	}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "pip", "pip.conf"))
	}
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		files = append(files, filepath.Join(venv, "pip.conf"))
	}
	if ok && last != "" {
		files = append(files, last)
	}
	return files
}

// readPipFile reads the sections that hold for every command and for the download of
// packages. A file that is not there is empty.
func readPipFile(path string) (map[string]string, error) {
	f, err := os.Open(path) //nolint:gosec // a file of settings, named by the user or the system
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	out := map[string]string{}
	section, key := "", ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[':
			section, key = strings.Trim(text, "[]"), ""
		case section != "global" && section != "install" && section != "download":
		case (line[0] == ' ' || line[0] == '\t') && key != "":
			out[key] += " " + text // a further line of the value
		default:
			name, value, ok := strings.Cut(text, "=")
			if !ok {
				name, value, _ = strings.Cut(text, ":")
			}
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
			out[key] = strings.TrimSpace(value)
		}
	}
	return out, lines.Err()
}

// client is what asks an index, with pip's certificates where it names some.
func (s pipSettings) client() (*http.Client, error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default transport is not one of HTTP")
	}
	transport = transport.Clone()
	transport.ResponseHeaderTimeout = responsePatience
	if s.cert != "" {
		pool, err := certificates(s.cert)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = pool
	}
	return &http.Client{Transport: transport}, nil
}

// shown is an address without user and password: a token may be either.
func shown(u *url.URL) string {
	bare := *u
	bare.User = nil
	return bare.String()
}

// get asks for an address. Its errors name no user and no password.
func get(ctx context.Context, client *http.Client, at *url.URL, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: no address to ask", shown(at))
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		var failed *url.Error // it prints the address
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, fmt.Errorf("%s: %w", shown(at), err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", shown(at), resp.Status), resp.Body.Close())
	}
	return resp, nil
}

// locate finds the address of a wheel in the indexes.
func (s pipSettings) locate(ctx context.Context, client *http.Client, p Pin) (*url.URL, error) {
	if s.noIndex {
		return nil, fmt.Errorf("pip is set to use no index: fetch %s elsewhere and name it with --from", p.Wheel)
	}
	index := s.index
	if index == "" {
		var err error
		if index, err = publicIndex(ctx); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, index := range append([]string{index}, s.extra...) {
		at, err := locateIn(ctx, client, index, p)
		if err == nil {
			return at, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// publicIndex is the index that pip takes when no setting names one, as pip itself says.
func publicIndex(ctx context.Context) (string, error) {
	ctx, stop := context.WithTimeout(ctx, pipPatience)
	defer stop()
	out, err := exec.CommandContext(ctx, "python3", "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)").Output()
	if index := strings.TrimSpace(string(out)); err == nil && index != "" {
		return index, nil
	}
	return "", errors.New("no index of Python packages is set, and no pip is here to name the public one: set PIP_INDEX_URL, or name the wheel with --from")
}

// locateIn finds the address of a wheel on the page of its package in one index, which
// answers in JSON or HTML.
func locateIn(ctx context.Context, client *http.Client, index string, p Pin) (*url.URL, error) {
	base, err := url.Parse(strings.TrimRight(index, "/") + "/" + p.Package + "/")
	if err != nil || base.Scheme != "https" && base.Scheme != "http" {
		return nil, errors.New("index of packages: want an http or https address in PIP_INDEX_URL or pip.conf")
	}
	resp, err := get(ctx, client, base, "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
	if err != nil {
		return nil, fmt.Errorf("index of packages: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	page, err := io.ReadAll(io.LimitReader(resp.Body, mostIndex))
	if err != nil {
		return nil, fmt.Errorf("index of packages: %s: %w", shown(base), err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // an unknown one is read as HTML
	links := htmlLinks
	if strings.HasSuffix(kind, "json") {
		links = jsonLinks
	}
	href := links(page)[p.Wheel]
	if href == "" {
		return nil, fmt.Errorf("index of packages: %s has no file %s", shown(base), p.Wheel)
	}
	at, err := fileAt(base, resp.Request.URL, href)
	if err != nil {
		return nil, fmt.Errorf("index of packages: address of %s: %w", p.Wheel, err)
	}
	return at, nil
}

// fileAt is the address of a file that a page names. As with pip it has the user and password
// of the index on the same host, but never without TLS where the index has it.
func fileAt(index, page *url.URL, href string) (*url.URL, error) {
	at, err := page.Parse(href)
	if err != nil {
		return nil, err
	}
	if at.Host == index.Host && at.Scheme == index.Scheme && at.User == nil {
		at.User = index.User
	}
	at.Fragment = ""
	return at, nil
}

// jsonLinks reads the files of a page in the JSON form (PEP 691).
func jsonLinks(page []byte) map[string]string {
	var doc struct {
		Files []struct {
			Filename string `json:"filename"`
			URL      string `json:"url"`
		} `json:"files"`
	}
	if err := json.Unmarshal(page, &doc); err != nil {
		return nil
	}
	out := map[string]string{}
	for _, f := range doc.Files {
		out[f.Filename] = f.URL
	}
	return out
}

// anchor is a link of a page in the HTML form (PEP 503).
var anchor = regexp.MustCompile(`(?is)<a\b[^>]*?\bhref\s*=\s*["']([^"']+)["'][^>]*>\s*([^<]+?)\s*</a>`)

// htmlLinks reads the files of a page in the HTML form.
func htmlLinks(page []byte) map[string]string {
	out := map[string]string{}
	for _, m := range anchor.FindAllSubmatch(page, -1) {
		out[html.UnescapeString(string(m[2]))] = html.UnescapeString(string(m[1]))
	}
	return out
}
