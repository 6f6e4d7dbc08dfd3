#!/bin/sh
# Makes the certificates of the TLS tests anew, here: two authorities that know nothing of each other, and what they signed.
# They are committed, so the tests need no openssl; nothing outside the tests may trust them.
set -eu
cd "$(dirname "$0")"

DAYS=36500 # a test that fails in some years for its certificate alone helps nobody

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1-key.pem"; }

authority() {
    new_key "$1"
    openssl req -x509 -new -key "$1-key.pem" -subj "/CN=$1 of the Tallygate tests" -days $DAYS -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
}

# NAME AUTHORITY USAGE SUBJECT_ALT_NAME
signed() {
    new_key "$1"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2-key.pem" -CAcreateserial -days $DAYS -extfile "$1.ext" \
        -out "$1.pem"
    rm "$1.csr" "$1.ext"
}

authority ca
authority other-ca
signed loopback ca serverAuth IP:127.0.0.1
signed named ca serverAuth DNS:redis.example
signed client ca clientAuth DNS:tallygate.example
signed stranger other-ca clientAuth DNS:tallygate.example
# Workloads of a mesh, and one of a mesh that trusts the same authority under another name.
authority mesh
signed mesh-orders mesh serverAuth URI:spiffe://cluster.local/ns/orders/sa/orders
signed mesh-shop mesh clientAuth URI:spiffe://cluster.local/ns/shop/sa/web
signed mesh-jobs mesh clientAuth URI:spiffe://cluster.local/ns/jobs/sa/batch
signed mesh-foreign mesh clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/web
# What is signed is signed.
rm -f ca-key.pem other-ca-key.pem mesh-key.pem ./*.srl
