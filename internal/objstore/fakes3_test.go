package objstore_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeS3 is a fake of the little of S3 that the package uses, so that its tests need no
// server; interop/objects holds the same against a real one. It checks no signatures.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string]fakeObject // bucket/key
	uploads map[string]*fakeUpload
	hook    func(w http.ResponseWriter, r *http.Request) bool // answers instead, if it likes
	page    int                                               // objects in a listing's page; 0 is 1000
}

type fakeObject struct {
	data []byte
	etag string
	meta http.Header
	sum  string // CRC-32C of all, as declared
	time time.Time
}

type fakeUpload struct {
	key   string
	parts map[int][]byte
	begun time.Time
}

func newFakeS3(t *testing.T) (*fakeS3, string) {
	t.Helper()
	f := &fakeS3{objects: map[string]fakeObject{}, uploads: map[string]*fakeUpload{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, s.URL
}

// before lets a hook see each request first.
func (f *fakeS3) before(hook func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// say answers. The client may have gone.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

func refuseS3(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	say(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func castagnoli(data []byte) string {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went
	}
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key, q := strings.TrimPrefix(r.URL.Path, "/"), r.URL.Query()
	bucket, name, _ := strings.Cut(key, "/")
	if bucket != "bucket" && bucket != "other" {
		refuseS3(w, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
		return
	}
	switch {
	case name == "" && q.Has("uploads"):
		f.listUploads(w, bucket, q.Get("prefix"))
	case name == "":
		f.list(w, bucket, q.Get("prefix"), q.Get("continuation-token"))
	case q.Has("uploads"):
		id := strconv.Itoa(len(f.uploads) + 1)
		f.uploads[id] = &fakeUpload{key: key, parts: map[int][]byte{}, begun: time.Now()}
		say(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case q.Has("uploadId"):
		f.upload(w, r, q.Get("uploadId"), q.Get("partNumber"), body)
	case r.Method == http.MethodPut:
		f.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.get(w, r, key)
	}
}

func (f *fakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := f.objects[key]
	if !ok {
		refuseS3(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	maps.Copy(w.Header(), o.meta)
	w.Header().Set("ETag", o.etag)
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && r.Method == http.MethodHead {
		w.Header().Set("X-Amz-Checksum-Crc32c", o.sum)
		w.Header().Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	http.ServeContent(w, r, "", o.time, strings.NewReader(string(o.data)))
}

func (f *fakeS3) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	if from := r.Header.Get("X-Amz-Copy-Source"); from != "" {
		src := f.objects[strings.ReplaceAll(from, "%2F", "/")]
		f.objects[key] = src
		say(w, "<CopyObjectResult><ETag>%s</ETag></CopyObjectResult>", src.etag)
		return
	}
	was, ok := f.objects[key]
	switch is, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match"); {
	case is != "" && !ok:
		refuseS3(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	case is != "" && is != was.etag, none != "" && ok:
		refuseS3(w, http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
		return
	}
	if sum := r.Header.Get("X-Amz-Checksum-Crc32c"); sum != castagnoli(body) {
		refuseS3(w, http.StatusBadRequest, "BadDigest", "The CRC32C you specified did not match")
		return
	}
	f.set(w, key, body, "", r.Header)
}

func (f *fakeS3) set(w http.ResponseWriter, key string, data []byte, suffix string, from http.Header) {
	sum := md5.Sum(data)
	o := fakeObject{data: data, etag: `"` + hex.EncodeToString(sum[:]) + suffix + `"`, meta: http.Header{}, sum: castagnoli(data), time: time.Now()}
	for name, values := range from {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			o.meta[name] = values
		}
	}
	f.objects[key] = o
	w.Header().Set("ETag", o.etag)
}

func (f *fakeS3) upload(w http.ResponseWriter, r *http.Request, id, part string, body []byte) {
	u := f.uploads[id]
	if u == nil {
		refuseS3(w, http.StatusNotFound, "NoSuchUpload", "The specified multipart upload does not exist.")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		delete(f.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPut:
		n, err := strconv.Atoi(part)
		if err != nil {
			refuseS3(w, http.StatusBadRequest, "InvalidArgument", "part")
			return
		}
		if from := r.Header.Get("X-Amz-Copy-Source"); from != "" {
			var a, b int
			_, _ = fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &a, &b) // else the copy is empty
			body = f.objects[strings.ReplaceAll(from, "%2F", "/")].data[a : b+1]
			say(w, "<CopyPartResult><ETag>p</ETag></CopyPartResult>")
		}
		u.parts[n] = body
		w.Header().Set("ETag", `"p"`)
	case http.MethodPost:
		var want struct {
			Part []struct{ PartNumber int }
		}
		if err := xml.Unmarshal(body, &want); err != nil {
			refuseS3(w, http.StatusBadRequest, "MalformedXML", err.Error())
			return
		}
		var data []byte
		for _, p := range want.Part {
			data = append(data, u.parts[p.PartNumber]...)
		}
		if sum := r.Header.Get("X-Amz-Checksum-Crc32c"); sum != castagnoli(data) {
			refuseS3(w, http.StatusBadRequest, "BadDigest", "The CRC32C you specified did not match")
			return
		}
		delete(f.uploads, id)
		f.set(w, u.key, data, "-"+strconv.Itoa(len(want.Part)), nil)
		say(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", f.objects[u.key].etag)
	}
}

func (f *fakeS3) list(w http.ResponseWriter, bucket, prefix, after string) {
	var b strings.Builder
	n := 0
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		name, ok := strings.CutPrefix(key, bucket+"/")
		if !ok || !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if f.page > 0 && n == f.page {
			fmt.Fprintf(&b, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", after)
			break
		}
		n, after = n+1, name
		o := f.objects[key]
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>%s</LastModified></Contents>", name, len(o.data), o.time.UTC().Format(time.RFC3339))
	}
	say(w, "<ListBucketResult><Name>%s</Name><Prefix>%s</Prefix><KeyCount>%d</KeyCount>%s</ListBucketResult>", bucket, prefix, n, b.String())
}

func (f *fakeS3) listUploads(w http.ResponseWriter, bucket, prefix string) {
	say(w, "<ListMultipartUploadsResult><Bucket>%s</Bucket><Prefix>%s</Prefix>", bucket, prefix)
	for id, u := range f.uploads {
		if name, ok := strings.CutPrefix(u.key, bucket+"/"); ok && strings.HasPrefix(name, prefix) {
			say(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", name, id, u.begun.UTC().Format(time.RFC3339))
		}
	}
	say(w, "</ListMultipartUploadsResult>")
}
