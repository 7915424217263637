// Buttons that copy a text.
import { announce, el } from './dom.ts';

const SHOWN_MS = 1_500;

/** @param text is asked for when the button is pressed. */
export function copyButton(label: string, text: () => string | Promise<string>): HTMLButtonElement {
  const button = el('button', { type: 'button', class: 'small', on: { click: () => void copy() } }, label);
  async function copy(): Promise<void> {
    const said = await copied(text);
    button.textContent = said;
    announce(said);
    setTimeout(() => {
      button.textContent = label;
    }, SHOWN_MS);
  }
  return button;
}

async function copied(text: () => string | Promise<string>): Promise<string> {
  let made: string;
  try {
    made = await text();
  } catch (error) {
    if (error instanceof RangeError) return 'Too long: download it instead';
    throw error;
  }
  // Browsers keep the clipboard from pages on an open line.
  return navigator.clipboard === undefined
    ? 'Not allowed here'
    : navigator.clipboard.writeText(made).then(
        () => 'Copied',
        () => 'Not allowed here',
      );
}
