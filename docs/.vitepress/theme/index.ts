// VitePress' own theme without its web font: a reader's system fonts, and nothing to load for them.
import theme from 'vitepress/theme-without-fonts';
import './site.css';

export default theme;
