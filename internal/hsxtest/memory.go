package hsxtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Memory is a fake of an object store: objects are whole or absent, and each state of
// one has a version. Its zero value is an empty store.
type Memory struct {
	// Before and After, if not nil, run around each operation: an error of Before keeps it
	// from happening, one of After loses the answer of an upload or a put.
	Before, After func(op, name string) error

	mu      sync.Mutex
	objects map[string]object
	uploads map[string]time.Time // begun and not completed
	states  int                  // that any object had
	read    int64                // bytes
}

type object struct {
	data     []byte
	version  string
	modified time.Time
}

// Load puts the files of a directory into the store.
func (m *Memory) Load(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		m.Set(filepath.ToSlash(name), data)
		return err
	})
}

// Set gives an object another state, behind everybody's back.
func (m *Memory) Set(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(name, data)
}

func (m *Memory) set(name string, data []byte) string {
	if m.objects == nil {
		m.objects = map[string]object{}
	}
	m.states++
	m.objects[name] = object{bytes.Clone(data), strconv.Itoa(m.states), time.Now()}
	return m.objects[name].version
}

// Read is how many bytes of objects were read so far.
func (m *Memory) Read() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

func (m *Memory) String() string { return "mem://test" }

// look begins an operation on an object that is there.
func (m *Memory) look(ctx context.Context, op, name string) (object, error) {
	if err := m.begin(ctx, op, name); err != nil {
		return object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return object{}, fmt.Errorf("%s %s: %w", op, name, fs.ErrNotExist)
	}
	return o, nil
}

func (m *Memory) begin(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil || m.Before == nil {
		return err
	}
	return m.Before(op, name)
}

func (m *Memory) end(op, name string) error {
	if m.After == nil {
		return nil
	}
	return m.After(op, name)
}

func (m *Memory) count(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read += int64(n)
}

// Get is an object and its version.
func (m *Memory) Get(ctx context.Context, name string) (data []byte, version string, err error) {
	o, err := m.look(ctx, "get", name)
	m.count(len(o.data))
	return o.data, o.version, err
}

// Size is the size of an object.
func (m *Memory) Size(ctx context.Context, name string) (int64, error) {
	o, err := m.look(ctx, "size", name)
	return int64(len(o.data)), err
}

// ReadRange fills p from an offset of an object.
func (m *Memory) ReadRange(ctx context.Context, name string, p []byte, off int64) error {
	o, err := m.look(ctx, "range", name)
	if err != nil {
		return err
	}
	n := copy(p, o.data[min(off, int64(len(o.data))):])
	m.count(n)
	if n < len(p) {
		return fmt.Errorf("range of %s: %w", name, io.ErrUnexpectedEOF)
	}
	return nil
}

// Copy copies an object of another fake.
func (m *Memory) Copy(ctx context.Context, from *Memory, fromName, name string) error {
	o, err := from.look(ctx, "copy", fromName)
	if err == nil {
		m.Set(name, o.data)
	}
	return err
}

// Names are the objects that begin with prefix.
func (m *Memory) Names(prefix string) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// Bytes is a copy of an object, nil when it is not there.
func (m *Memory) Bytes(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.objects[name].data)
}

// Delete removes an object behind everybody's back.
func (m *Memory) Delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
}

// Upload makes an object of a local file.
func (m *Memory) Upload(ctx context.Context, name, path string) error {
	if err := m.begin(ctx, "upload", name); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m.Set(name, data)
	return m.end("upload", name)
}

// PutIf gives an object its content if it has the given version.
func (m *Memory) PutIf(ctx context.Context, name string, data []byte, version string) (string, error) {
	if err := m.begin(ctx, "put", name); err != nil {
		return "", err
	}
	next, err := m.setIf(name, data, version)
	if err != nil {
		return "", err
	}
	return next, m.end("put", name)
}

func (m *Memory) setIf(name string, data []byte, version string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.objects[name].version; is != version {
		return "", fmt.Errorf("put %s: it has version %q, not %q: %w", name, is, version, fs.ErrExist)
	}
	return m.set(name, data), nil
}

// List tells of each object whose name begins with prefix.
func (m *Memory) List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error {
	if err := m.begin(ctx, "list", prefix); err != nil {
		return err
	}
	for _, name := range m.Names(prefix) {
		m.mu.Lock()
		o, ok := m.objects[name]
		m.mu.Unlock()
		if !ok {
			continue
		}
		if err := each(name, int64(len(o.data)), o.modified); err != nil {
			return err
		}
	}
	return nil
}

// Age makes everything in the store older.
func (m *Memory) Age(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, o := range m.objects {
		o.modified = o.modified.Add(-by)
		m.objects[name] = o
	}
	for name, begun := range m.uploads {
		m.uploads[name] = begun.Add(-by)
	}
}

// Abandon begins an upload that nobody completes.
func (m *Memory) Abandon(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uploads == nil {
		m.uploads = map[string]time.Time{}
	}
	m.uploads[name] = time.Now()
}

// Remove removes an object.
func (m *Memory) Remove(ctx context.Context, name string) error {
	if err := m.begin(ctx, "remove", name); err != nil {
		return err
	}
	m.Delete(name)
	return nil
}

// Uploads tells of each upload that was not completed.
func (m *Memory) Uploads(ctx context.Context, each func(name, id string, begun time.Time) error) error {
	if err := m.begin(ctx, "uploads", ""); err != nil {
		return err
	}
	m.mu.Lock()
	uploads := maps.Clone(m.uploads)
	m.mu.Unlock()
	for name, begun := range uploads {
		if err := each(name, "id of "+name, begun); err != nil {
			return err
		}
	}
	return nil
}

// Abort ends such an upload.
func (m *Memory) Abort(ctx context.Context, name, id string) error {
	if err := m.begin(ctx, "abort", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id != "id of "+name {
		return fmt.Errorf("abort %s: no upload %q", name, id)
	}
	delete(m.uploads, name)
	return nil
}
