package objstore

// Parse is what a URL is taken for.
func Parse(url string) (scheme, bucket, prefix string, err error) {
	a, err := parse(url)
	return a.scheme, a.bucket, a.prefix, err
}
