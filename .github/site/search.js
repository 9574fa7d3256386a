// The search would read the dashes of --gamma as "without gamma": it gets the words that were typed without them.
const box = document.querySelector("input[name=query]");
const typed = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
if (box) {
  Object.defineProperty(box, "value", {
    get() {
      return typed.get.call(this).replace(/(^|\s)-+/g, "$1");
    },
    set(text) {
      typed.set.call(this, text);
    },
  });
}
