// The token comes behind the # of the address, which browsers send to nobody; it is exchanged for a cookie.
const token = decodeURIComponent(location.hash.slice(1));
history.replaceState(null, "", "/");
if (token) {
  fetch("/enter", { headers: { authorization: `Bearer ${token}` } }).then((answer) => {
    if (answer.ok) location.replace("/");
  });
}
